"""Figures of the chapters, by subject: arrays in, Axes out."""
