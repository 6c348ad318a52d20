"""Replay buffers: fixed-size pytrees with pure functions `init`, `add` and `sample`."""
