"""Rolling windows: the rows they hold, and the kernels that add and remove rows."""
