"""Chapter 9b: Stale states."""
