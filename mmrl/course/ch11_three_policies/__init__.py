"""Chapter 11: Three policies, not two."""
