"""Chapter 18: Many devices."""
