"""Chapter 5: Returns are monoids too."""
