"""Rivals of CLEAR for tasks that come one after another, and measures of forgetting.

`cycles` plays tasks in turn, in the order of one of the `schedules`, and measures how much is kept.
`ewc` and `progress` are other agents, which need to be notified when a task ends.
"""
