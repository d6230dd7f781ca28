"""The forms that hold the state of a stream: covariance, square root, information."""
