"""Chapter 13: Forgetting and interference."""
