"""``olsq predict``: what a saved regression says of new rows."""
