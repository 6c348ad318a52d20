"""The explorers of chapter 18: a scan over devices, and its estimated costs."""

from traitlets import Bool, Enum, Float, Int

from mmrl.course.widgets.base import END, Explorer, Series, source, style


class ShardedScanPlayer(Explorer):
    """h_t = x_0 • … • x_t of a tape that is split over `devices`, stage by stage.

    Every device scans its own part, sends its total to all others, computes the product of the
    totals before its own, and combines that with its prefixes from the left. Shows the first
    `length` of `values`; `gain` is a in "affine" and the decay in "max". With `reverse`, earlier
    means nearer to the end. With `resets`, the element at step `reset` forgets everything before
    it. `stage` is the number of finished stages, of five, `END` all of them.
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
    """Bytes, latency and share of the time of a scan over devices.

    Computed as in `mmrl.course.ch18_many_devices.scaling`, not measured: the tape has 2^`log_steps`
    steps, `size` is the memory's d, and 2^`log_devices` devices split it. `network` selects the
    devices that share a node, where messages are fast: eight each, all, or none. With `united`, one
    all-gather sends the leaves of a total together, as programs for GPUs do; otherwise each leaf
    waits separately, as on CPUs. `capacity` is a device's memory, in GB.
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
