"""Chapter 9: R2D2."""
