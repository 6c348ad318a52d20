"""Chapter 17: Compiling REINFORCE and PPO."""
