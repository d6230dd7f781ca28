"""The forms in which the state of a stream is stored: covariance, square root, information."""
