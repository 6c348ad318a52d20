"""Chapter 2: Monoids and scans."""
