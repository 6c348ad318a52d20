"""Explorers of a scan over several devices and of its estimated cost."""

from traitlets import Bool, Enum, Float, Int

from mmrl.course.widgets.base import END, Explorer, Series, source, style


class ShardedScanPlayer(Explorer):
    """Player for the scan h_t = x_0 • … • x_t over a tape that is split across `devices`.

    Every device scans its part of the tape, sends its total to all other devices, computes the
    product of the totals before its own, and multiplies its prefixes by this product from the left.
    `stage` is the number of finished stages, 0 to 5; `END` shows all five.

    The player shows the first `length` of `values`. `gain` is the factor a of "affine" or the decay
    of "max". If `reverse` is True, the scan starts at the end of the tape. If `resets` is True, the
    element at step `reset` discards all earlier elements.
    """

    _esm = source("sharded_scan_player")
    _css = style()
    values = Series(tuple(map(int, "31415926535897932384626433832795")))
    monoid = Enum(("sum", "affine", "max"), "sum").tag(sync=True)
    devices = Enum((1, 2, 4, 8), 4).tag(sync=True)
    length = Int(16, min=8, max=32).tag(sync=True)
    gain = Float(0.5, min=0.1, max=1.0).tag(sync=True)
    reverse = Bool(False).tag(sync=True)
    resets = Bool(False).tag(sync=True)
    reset = Int(8, min=0, max=31).tag(sync=True)
    stage = Int(END, min=0).tag(sync=True)


class ScalingCalculator(Explorer):
    """Calculator of the bytes and the time of a scan across devices.

    The results are estimates by the model in `mmrl.course.ch18_many_devices.scaling`. A tape of
    2^`log_steps` steps is split across 2^`log_devices` devices, and `size` is the size d of the
    memory. `network` selects how many devices share a node with fast communication: eight, all
    ("within") or only one ("across"). If `united` is True, one all-gather sends all leaves of
    a total, as on GPUs. Otherwise each leaf has a separate all-gather, as on CPUs. `capacity` is
    the memory of a device in GB.
    """

    _esm = source("scaling_calculator")
    _css = style()
    model = Enum(("lru", "s5", "ffm", "linear_attention"), "lru").tag(sync=True)
    log_steps = Int(20, min=10, max=26).tag(sync=True)
    size = Int(64, min=8, max=256).tag(sync=True)
    log_devices = Int(6, min=0, max=8).tag(sync=True)
    network = Enum(("eight", "within", "across"), "eight").tag(sync=True)
    united = Bool(True).tag(sync=True)
    capacity = Int(141, min=8, max=192).tag(sync=True)
