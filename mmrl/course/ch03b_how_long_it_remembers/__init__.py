"""Chapter 3b: How long a memory remembers."""
