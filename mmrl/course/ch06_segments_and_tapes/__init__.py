"""Chapter 6: Segments and tapes."""
