"""Chapter 7: Train it: DQN on a tape."""
