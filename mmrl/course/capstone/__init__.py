"""The capstone: a memory of your own through the gates, within a budget, onto the leaderboard.

    gates.judge(MyMemory)                # which laws and promises does it keep? a sentence each
    evaluation.evaluate(MyMemory)        # its return on tasks that nobody tuned on
    entries.check(path)                  # is an entry what it says? measured again

`mmrl capstone gates`, `run` and `check` are the same as commands.
"""
