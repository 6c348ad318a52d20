"""Two executors of the same schedule: an interpreter with an account of every byte, and XLA."""
