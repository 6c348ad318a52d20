"""Chapter 4: Resets."""
