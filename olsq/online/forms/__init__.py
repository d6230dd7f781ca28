"""The forms in which the state of a stream is stored: a factor, or a triangle with roots."""
