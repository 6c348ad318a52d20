"""Discounted returns of 1000 episodes of 1 to 99 steps on one tape, in many ways.

    python tests/benchmarks/bench_returns.py

The forms, and how they take turns, are those of `mmrl experiment returns_timing`. Ratios above 1
mean that ours, one backward scan of the whole tape, is faster. The baseline is the way of the
paper's code, a compiled call per episode. Forms whose input someone else has padded are bounds.
"""

from mmrl.course.experiments import returns_timing as timing

TARGETS = {timing.LOOP: 1000.0}
SLOW = (timing.LOOP, timing.LFILTER, timing.STEPS)


def run(quick: bool = False) -> list[dict]:
    """Ours against every other form, and against the fastest of the single compiled calls."""
    times = timing.measure(timing.QUICK if quick else timing.Cell(1000, 100), quick)["ms"]
    mine = times.pop(timing.OURS)

    def row(peer_name: str, milliseconds: float, target: float | None) -> dict:
        return {
            "name": "discounted returns",
            "ours": mine,
            "peer": milliseconds,
            "ratio": milliseconds / mine,
            "peer_name": peer_name,
            "unit": "ms",
            "target": target,
        }

    rows = [row(name, t, TARGETS.get(name)) for name, t in times.items()]
    single = {name: t for name, t in times.items() if name not in SLOW}
    fastest = min(single, key=single.__getitem__)
    return [*rows, row(f"fastest single call ({fastest})", single[fastest], 1.0)]


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:20s} {line['ours']:8.3f} {line['unit']}  {line['ratio']:8.2f} × "
            f"{line['peer_name']} (target {line['target']})",
            flush=True,
        )
