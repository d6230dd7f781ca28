"""``olsq sample``: text from a trained model."""
