"""Replay: pure init / add / sample on pytrees of static shapes; no memory, environment or loss."""
