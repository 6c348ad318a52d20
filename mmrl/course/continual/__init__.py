"""What CLEAR is compared with when tasks come one after another, and how that is measured.

`cycles` plays tasks in turn, by one of the `schedules`, and measures what is kept; `ewc` and
`progress` are other agents for them, which have to be told when a task ends.
"""
