"""The capstone: take your own memory through the gates, within a budget, to the leaderboard.

    gates.judge(MyMemory)                # check its laws and interface; a sentence per failure
    evaluation.evaluate(MyMemory)        # measure its return on held-out tasks
    entries.check(path)                  # measure an entry again and compare

The commands `mmrl capstone gates`, `run` and `check` do the same.
"""
