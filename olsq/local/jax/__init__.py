"""Local least squares for JAX arrays, block by block."""
