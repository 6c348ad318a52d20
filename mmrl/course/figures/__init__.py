"""Figures of several chapters, by subject: functions of arrays that return Axes."""
