"""Chapter 1: Partial observability."""
