"""Chapter 12: Batch size-invariance."""
