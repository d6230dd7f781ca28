"""``olsq sample`` and ``olsq chat``: text from a trained model."""
