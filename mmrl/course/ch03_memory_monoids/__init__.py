"""Chapter 3: Memory monoids from scratch."""
