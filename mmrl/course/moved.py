"""Former names of modules of the course, which can still be imported.

Students may have saved notebooks that import modules by their former names. For example,
`mmrl.course.exercises.chapter_09` is now `mmrl.course.ch09_r2d2.exercises`, and both names refer to
the same module. `mmrl.course` calls `install` when it is imported.
"""

from mmrl import _moved

SUCCESSORS = {
    "exercises.chapter_00": "ch00_start_here.exercises",
    "exercises.chapter_00b": "ch00b_jax_in_thirty_minutes.exercises",
    "exercises.chapter_01": "ch01_partial_observability.exercises",
    "exercises.chapter_02": "ch02_monoids_and_scans.exercises",
    "exercises.chapter_03": "ch03_memory_monoids.exercises",
    "exercises.chapter_03b": "ch03b_how_long_it_remembers.exercises",
    "exercises.chapter_04": "ch04_resets.exercises",
    "exercises.chapter_05": "ch05_returns_are_monoids.exercises",
    "exercises.chapter_06": "ch06_segments_and_tapes.exercises",
    "exercises.chapter_07": "ch07_train_it.exercises",
    "exercises.chapter_08": "ch08_what_truncation_costs.exercises",
    "exercises.chapter_09": "ch09_r2d2.exercises",
    "exercises.chapter_09b": "ch09b_stale_states.exercises",
    "exercises.chapter_10": "ch10_ppo_with_memory.exercises",
    "exercises.chapter_11": "ch11_three_policies.exercises",
    "exercises.chapter_12": "ch12_batch_size_invariance.exercises",
    "exercises.chapter_12b": "ch12b_advantage_moments.exercises",
    "exercises.chapter_13": "ch13_forgetting.exercises",
    "exercises.chapter_14": "ch14_clear.exercises",
    "exercises.chapter_15": "ch15_recurrent_tensors.exercises",
    "exercises.chapter_16": "ch16_graphs_and_schedules.exercises",
    "exercises.chapter_17": "ch17_compiling.exercises",
    "exercises.chapter_18": "ch18_many_devices.exercises",
    "exercises.chapter_19": "ch19_design_your_own_monoid.exercises",
    "figures.beliefs": "ch01_partial_observability.figures",
    "figures.scans": "ch02_monoids_and_scans.figures",
    "figures.leaks": "ch04_resets.figures",
    "figures.returns": "ch05_returns_are_monoids.figures",
    "figures.clear": "ch14_clear.figures",
    "figures.schedules": "ch16_graphs_and_schedules.figures",
    "figures.compiling": "ch17_compiling.figures",
    "figures.capstone": "ch19_design_your_own_monoid.figures",
    "experiments.returns_timing": "ch05_returns_are_monoids.experiment_returns_timing",
    "experiments.batching": "ch07_train_it.experiment_batching",
    "experiments.ffm": "ch07_train_it.experiment_ffm",
    "experiments.training_times": "ch07_train_it.experiment_training_times",
    "experiments.sensitivity": "ch08_what_truncation_costs.experiment_sensitivity",
    "experiments.r2d2": "ch09_r2d2.experiment_r2d2",
    "experiments.ppo": "ch10_ppo_with_memory.experiment_ppo",
    "experiments.staleness": "ch11_three_policies.experiment_staleness",
    "experiments.ewma": "ch11_three_policies.experiment_ewma",
    "experiments.invariance": "ch12_batch_size_invariance.experiment_invariance",
    "experiments.minatar": "ch14_clear.experiment_minatar",
    "experiments.graphs": "ch17_compiling.experiment_graphs",
    "experiments.baselines": "experiments.experiment_baselines",
    "experiments.forgetting": "experiments.experiment_forgetting",
    "experiments.popgym": "experiments.experiment_popgym",
    "experiments.seeds": "experiments.experiment_seeds",
    "experiments.speed": "experiments.experiment_speed",
    "experiments.quirks": "ch07_train_it.quirks",
    "experiments.proximal": "ch11_three_policies.proximal",
    "experiments.by_hand": "ch17_compiling.by_hand",
    "experiments.rivals": "ch17_compiling.rivals",
    "segments": "ch06_segments_and_tapes.segments",
    "pair": "ch18_many_devices.pair",
    "scaling": "ch18_many_devices.scaling",
    "collectives": "ch18_many_devices.collectives",
}
"""Current name of each module that moved, keyed by former name, relative to `mmrl.course`."""

SPLITS = {
    "figures.r2d2": ("ch09_r2d2.figures", "ch09b_stale_states.figures", "figures.errors"),
    "figures.policies": ("ch10_ppo_with_memory.figures", "ch11_three_policies.figures"),
    "figures.batching": ("ch07_train_it.figures", "figures.lines"),
    "figures.memory": ("ch03b_how_long_it_remembers.figures", "figures.lines"),
    "figures.sensitivity": ("ch08_what_truncation_costs.figures", "figures.lines"),
    "figures.invariance": (
        "ch12_batch_size_invariance.figures",
        "ch12b_advantage_moments.figures",
        "figures.lines",
        "experiments.stratified",
    ),
    "figures.forgetting": ("ch13_forgetting.figures", "figures.scores"),
}
"""Modules among which a former module was split, keyed by former name.

A name is looked up in these modules in order.
"""


def install() -> None:
    """Make the former names importable in this process."""
    full = "mmrl.course.{}".format
    names = {name: full(heir) for name, heir in SUCCESSORS.items()}
    split = {name: tuple(map(full, heirs)) for name, heirs in SPLITS.items()}
    _moved.install("mmrl.course", names, split)
