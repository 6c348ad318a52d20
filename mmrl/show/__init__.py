"""Learning curves, the player of episodes and the training explorer: what a library draws."""
