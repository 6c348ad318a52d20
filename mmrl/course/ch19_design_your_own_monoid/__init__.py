"""Chapter 19: Design your own monoid."""
