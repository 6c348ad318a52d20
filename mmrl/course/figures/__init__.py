"""Plots that several chapters share. The functions take arrays and return Matplotlib axes."""
