"""Chapter 0b: JAX in thirty minutes."""
