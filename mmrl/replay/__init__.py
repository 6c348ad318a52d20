"""Replay: pure init / add / sample on pytrees with static shapes. Nothing here sees a memory, an environment or a loss."""
