"""Chapter 14: CLEAR: replay that stops forgetting."""
