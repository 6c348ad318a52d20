"""Chapter 8: What truncation costs."""
