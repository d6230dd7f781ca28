"""One triangular factor with its diagonal: the state of a stream of rows, and its recursion."""
