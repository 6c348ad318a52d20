"""Rivals of CLEAR where tasks come one after another, and measures of what is kept.

`cycles` plays tasks in turn, by one of the `schedules`, and measures what is kept; `ewc` and
`progress` are other agents for them, which have to be told when a task ends.
"""
