"""Chapter 10: PPO with memory."""
