"""Train many seeds block by block: progress, checkpoints, exact resume, results with provenance.

This package is the only one that touches the disk.

    run = Run(Setup(env="popgym-RepeatFirstEasy-v0", seeds=(0, 1, 2)), path="runs/first")
    for report in run:                  # one report per block; break to stop, iterate to continue
        print(report.block, report.returns.mean())
    run.state                           # every seed's networks, tape and environments
    run.best                            # each seed's best network so far, and its block
    logged(run, "csv", "tensorboard")   # the same reports, each after it was written

    Setup(env="popgym-RepeatFirstEasy-v0", agent="r2d2")  # its settings: `r2d2.Config`

    sweep = Run(Setup("popgym-RepeatFirstEasy-v0", seeds=SEEDS, over={"gamma": (0.5, 0.9)}))
    list(sweep)
    sweep.verdict().winner.setting      # {"gamma": 0.5}

In a run's folder, `checkpoint` holds everything after the last complete block, `best` the best
networks, and `results.json` the setup, the provenance and one row per block for people to read.
Each file is replaced as a whole, so a kill at any moment loses at most the block in progress. A
resumed run computes bit for bit the same as an uninterrupted one, on the same machine and versions.
"""

from mmrl.runs.checkpoint import load, read, save
from mmrl.runs.identity import describe, restore
from mmrl.runs.processes import RunError, until_preempted
from mmrl.runs.programs import Program, program
from mmrl.runs.reopen import reopen, saved, saved_sweep
from mmrl.runs.results import append, interquartile_mean, interval, provenance
from mmrl.runs.run import Report, Run, Sweep
from mmrl.runs.setup import PRECISIONS, SEEDS, SHOWN, Setup
from mmrl.runs.snapshot import Best, Snapshot
from mmrl.runs.sweep import Scored, Verdict
from mmrl.runs.writers import logged

__all__ = [
    "PRECISIONS",
    "SEEDS",
    "SHOWN",
    "Best",
    "Program",
    "Report",
    "Run",
    "RunError",
    "Scored",
    "Setup",
    "Snapshot",
    "Sweep",
    "Verdict",
    "append",
    "describe",
    "interquartile_mean",
    "interval",
    "load",
    "logged",
    "program",
    "provenance",
    "read",
    "reopen",
    "restore",
    "save",
    "saved",
    "saved_sweep",
    "until_preempted",
]
