"""Chapter 0: Start here."""
