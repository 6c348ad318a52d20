"""Methods to compare with CLEAR on a sequence of tasks, and measures of forgetting.

`cycles` trains an agent on one task after another and measures how much it forgets. `schedules`
builds the order of the tasks. `ewc` and `progress` are agents that must be notified when a task
ends.
"""
