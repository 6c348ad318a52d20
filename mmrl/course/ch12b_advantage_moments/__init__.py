"""Chapter 12b: Advantage moments and phases."""
