"""Arrays in, figure out. The only rung that draws."""
