"""The capstone project, in which you design a memory and enter it on the leaderboard.

    gates.judge(MyMemory)                # check its laws, interface and size
    evaluation.evaluate(MyMemory)        # measure its return on held-out tasks
    entries.check(path)                  # measure an entry again and compare

The commands `mmrl capstone gates`, `run` and `check` do the same.
"""
