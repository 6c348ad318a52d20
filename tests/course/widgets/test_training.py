"""The training explorer without a browser: settings, buttons, threads, bad input, what is kept."""

import _thread
import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from ipywidgets import Box

from mmrl.course import links, plain
from mmrl.course.widgets.training import AgentPlayer, TrainingExplorer, watch
from mmrl.course.widgets.training import trial as trials
from mmrl.course.widgets.training.live import MARKS, Curve, LiveCurves
from mmrl.course.widgets.training.watch import Watch
from mmrl.runs import Report, Run, RunError, Setup, Snapshot, program, reopen
from mmrl.show import STYLES

ENV, OTHER = "popgym-RepeatPreviousEasy-v0", "probe-Memory-v0"
TINY = dataclasses.replace(
    plain.DQN,
    width=8,
    environments=2,
    rollout=8,
    updates=1,
    batch=51,
    capacity=512,
    block=1,
    episodes=2,
)


class Slow(Run):
    """In place of `Run`: a block ends when the test lets it."""

    gate = threading.Semaphore(0)
    starts = threading.Semaphore(0)

    def __init__(self, setup: Setup):
        self.setup, self.snapshot = setup, Snapshot({}, None, [], None, {})

    def begin(self) -> int:
        return 0

    def save(self, path: Path) -> None:
        path.mkdir(parents=True)

    def __iter__(self) -> Iterator[Report]:
        for block in range(1, self.setup.config.blocks + 1):
            Slow.starts.release()
            Slow.gate.acquire()
            returns = np.full(len(self.setup.seeds), block / 10)
            self.snapshot = self.snapshot._replace(history=[*self.history, {}])
            yield Report(
                block, self.setup.config.blocks, 100 * block, returns, returns, returns, 2.0
            )


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Slow]]:
    Slow.gate, Slow.starts = threading.Semaphore(0), threading.Semaphore(0)
    monkeypatch.setattr(trials, "Run", Slow)
    before = set(threading.enumerate())
    yield Slow
    Slow.gate.release(1000)
    for thread in set(threading.enumerate()) - before:  # else it takes the next test's blocks
        thread.join(600)


def explorer(**settings) -> TrainingExplorer:
    return TrainingExplorer(config=TINY, **{"env": ENV, "seeds": 2, "blocks": 3, **settings})


def status(widget: TrainingExplorer) -> str:
    return widget._panel.status.value


def alt(widget: TrainingExplorer) -> str:
    return re.findall('<img alt="([^"]*)"', widget._panel.picture.value)[0]


def press(widget: TrainingExplorer, name: str) -> None:
    widget._panel.buttons[name].click()


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 600
    while not true():
        assert time.monotonic() < limit, "waited for ten minutes"
        time.sleep(0.005)


def only(widget: TrainingExplorer):
    [trial] = widget.trials.values()
    return trial


# What is seen before anything happens


def test_it_starts_empty_and_says_what_to_do():
    widget = explorer()
    assert "press Train" in status(widget) and "role='status'" in status(widget)
    assert widget.png.startswith(b"\x89PNG")
    assert "no curve yet" in alt(widget)  # what a screen reader says
    buttons = {name: not button.disabled for name, button in widget._panel.buttons.items()}
    assert buttons == {"Train": True, "Pause": False, "Stop": False, "Clear": True, "Save": True}
    assert {"mmrl", "mmrl-training"} <= set(widget._dom_classes)


def test_every_control_has_a_label_and_follows_its_trait():
    widget = explorer()
    boxes = widget._panel.boxes
    assert all(box.description for box in [*boxes.values(), widget._panel.folder])
    assert set(boxes) == set(widget.class_own_traits())
    widget.gamma, widget.memory = 0.9, "gru"
    assert boxes["gamma"].value == 0.9 and boxes["memory"].value == "gru"
    boxes["batching"].value, boxes["segment_length"].value = "segments", 20
    assert widget.batching == "segments" and widget.segment_length == 20
    assert not boxes["segment_length"].disabled
    boxes["batching"].value = "tape"
    assert boxes["segment_length"].disabled
    widget.env = "popgym-AutoencodeHard-v0"  # not in the list at first
    assert boxes["env"].value == "popgym-AutoencodeHard-v0"


# Buttons, with blocks that end when the test says so


def test_training_goes_on_in_the_background(slow):
    widget = explorer(blocks=2)
    press(widget, "Train")
    assert "compiling" in status(widget) and "<progress" in status(widget)
    assert widget._panel.buttons["Train"].disabled
    press(widget, "Train")  # a click on its way already
    widget.train()
    assert "is being trained: wait, or press Stop first" in status(widget)
    slow.gate.release()
    until(lambda: "block 1 of 2" in status(widget))
    assert "2 s including compilation" in status(widget) and "left" not in status(widget)
    slow.gate.release()
    until(only(widget).finished.is_set)
    assert "done, block 2 of 2, 2 s per block" in status(widget)
    assert [point.env_steps for point in only(widget).curve.points] == [100, 200]
    assert "lru: 0.20 [0.20, 0.20] at 200 steps" in alt(widget)
    assert (
        "<th scope='row'>" in widget._panel.table.value
        and not widget._panel.buttons["Train"].disabled
    )


@pytest.mark.slow
def test_stop_during_the_first_block_is_answered_at_once(slow):
    widget = explorer()
    press(widget, "Train")
    slow.starts.acquire()  # it compiles now
    first = only(widget)
    press(widget, "Stop")
    assert "stopped after block 0 of 3" in status(widget) and "in the background" in status(widget)
    press(widget, "Stop")  # twice is no harm
    widget.memory = "gru"
    press(widget, "Train")  # at once, while the first one still compiles
    slow.starts.acquire()
    assert "gru: compiling" in status(widget)
    slow.gate.release(4)  # three blocks of the second, and the one that the first is in
    until(first.finished.is_set)
    until(lambda: "gru: done, block 3 of 3" in status(widget))
    assert not first.reports and [name for _, name in widget.trials] == ["gru"]


def test_pause_waits_for_the_block_and_goes_on(slow):
    widget = explorer()
    press(widget, "Pause")  # nothing to pause
    press(widget, "Train")
    press(widget, "Pause")
    assert "pauses at the end of this block" in status(widget)
    assert widget._panel.buttons["Pause"].description == "Continue"
    slow.gate.release(3)
    until(lambda: "paused, block 1 of 3" in status(widget))
    time.sleep(0.05)
    assert len(only(widget).reports) == 1
    press(widget, "Pause")
    until(lambda: "done" in status(widget))
    assert len(only(widget).reports) == 3


def test_a_paused_run_can_be_stopped_and_keeps_its_blocks(slow):
    widget = explorer()
    press(widget, "Train")
    press(widget, "Pause")
    slow.gate.release()
    until(lambda: "paused" in status(widget))
    press(widget, "Stop")
    until(only(widget).finished.is_set)
    assert "stopped after block 1 of 3" in status(widget) and len(only(widget).reports) == 1


def test_clear_stops_and_removes(slow):
    widget = explorer()
    press(widget, "Train")
    running = only(widget)
    press(widget, "Clear")
    assert not widget.trials and running.status == "stopped" and "press Train" in status(widget)
    slow.gate.release(5)
    until(running.finished.is_set)
    assert not widget.trials and "no curve yet" in alt(widget)


@pytest.mark.slow
def test_a_run_with_a_smaller_batch_says_so(slow):
    """Whole segments of 4 steps make a batch of 48, where the config has 51."""
    slow.gate.release(1000)
    widget = explorer(blocks=1, batching="segments", segment_length=4)
    assert widget.run().setup.config.batch == 48
    widget.run(segment_length=3)
    assert [name for _, name in widget.trials] == ["lru, segments 4, batch 48", "lru, segments 3"]


@pytest.mark.full
@pytest.mark.slow
def test_runs_are_overlaid_named_replaced_and_removed(slow):
    slow.gate.release(1000)
    widget = explorer(blocks=1)
    for memory in ("lru", "gru", "none"):
        widget.run(memory=memory)
    widget.run("mine", gamma=0.9, memory="lru")
    widget.run(batching="segments")
    names = [name for _, name in widget.trials]
    assert names == ["lru", "gru", "none", "mine", "lru, segments 10, γ 0.9, batch 50"]
    assert [t.curve.style for t in widget.trials.values()] == [0, 1, 2, 3, 4]
    widget.run("mine", seeds=1)  # the same cell again: it takes its own place
    assert [t.curve.style for t in widget.trials.values()] == [0, 1, 2, 4, 3]
    removers = {button.description: button for button in widget._panel.removers.children}
    removers["Remove gru"].click()
    assert [t.curve.style for t in widget.trials.values()] == [0, 2, 4, 3]  # colours stay
    assert "Remove gru" not in {b.description for b in widget._panel.removers.children}
    widget.remove("gru")  # twice is no harm
    widget.env = OTHER
    assert "no curve yet" in alt(widget) and not widget._panel.removers.children
    widget.env = ENV
    assert "mine: " in alt(widget)


@pytest.mark.full
@pytest.mark.slow
def test_an_eighth_run_is_refused_in_words(slow):
    slow.gate.release(1000)
    widget = explorer(blocks=1)
    for i in range(len(STYLES)):
        widget.run(f"run {i}")
    press(widget, "Train")
    assert "at most 7 runs; remove one first" in status(widget) and len(widget.trials) == 7


def test_the_last_runs_of_an_environment_stay_beside_a_new_one(slow, monkeypatch):
    monkeypatch.setattr(LiveCurves, "draw", lambda *_, **__: b"")
    slow.gate.release(1000)
    widget = explorer(blocks=1, keep=3)
    for i in range(6):
        widget.run(f"run {i}")
        assert [name for _, name in widget.trials] == [
            f"run {j}" for j in range(max(i - 3, 0), i + 1)
        ]
    widget.run("run 3")  # again: none has to leave
    assert [name for _, name in widget.trials] == ["run 2", "run 4", "run 5", "run 3"]
    widget.run("elsewhere", env=OTHER)
    assert len(widget.trials) == 5


@pytest.mark.slow
def test_runs_of_other_seeds_and_blocks_have_other_names(slow):
    slow.gate.release(1000)
    widget = explorer(blocks=1)
    for numbers in ({}, {"seeds": 1}, {"seeds": 3}, {"seeds": 2, "blocks": 2}, {"blocks": 1}):
        widget.run(**numbers)
    names = [name for _, name in widget.trials]
    assert names == ["lru, 1 seed", "lru, 3 seeds", "lru, 2 blocks", "lru"]  # the last one again


def test_what_would_not_fit_a_laptop_is_not_begun(slow, monkeypatch: pytest.MonkeyPatch):
    slow.gate.release(1000)
    widget = explorer(blocks=1, keep=1)
    for name in ("the first", "the second"):  # one more makes the first one leave
        widget.run(name)
    monkeypatch.setattr(links, "NUMBERS", 1000)
    press(widget, "Train")
    assert "must have at most 1,000 entries here; got " in status(widget)
    assert [name for _, name in widget.trials] == ["the first", "the second"]
    monkeypatch.setattr(links, "STEPS", 10)
    press(widget, "Train")
    assert "must be at most 10 steps here; got 16" in status(widget)


def test_what_cannot_be_built_is_told_and_costs_no_run(slow, monkeypatch: pytest.MonkeyPatch):
    def fail(_):
        raise TypeError("no such board")

    slow.gate.release(1000)
    widget = explorer(blocks=1, keep=1)
    widget.run("the first")
    monkeypatch.setattr("mmrl.course.widgets.training.explorer.Run", fail)
    press(widget, "Train")
    assert "TypeError: no such board" in status(widget)
    assert [name for _, name in widget.trials] == ["the first"]


# The agent at play


class StubPlayer(Box):
    """In place of a player: it remembers what it was told to show."""

    views: list[tuple[int, int]]  # blocks and episode

    def __init__(self, run: Run, episode: int = 0):
        Box.__init__(self)
        self.views = []
        self.show(run, episode)

    def show(self, run: Run, episode: int = 0) -> None:
        self.views.append((len(run.history), episode))


@pytest.fixture
def explorer_and_watch(slow, monkeypatch: pytest.MonkeyPatch) -> tuple[TrainingExplorer, Watch]:
    monkeypatch.setattr(watch, "AgentPlayer", StubPlayer)
    monkeypatch.setattr(watch, "PAUSE", 0.0)
    widget = explorer()
    return widget, Watch(widget)


def test_the_latest_agent_plays_after_every_block(explorer_and_watch):
    widget, beside = explorer_and_watch
    assert "No agent yet" in beside.said.value
    press(widget, "Train")
    for block in range(1, 4):
        Slow.gate.release()
        until(lambda block=block: f"after {block} block" in beside.said.value)
    until(only(widget).finished.is_set)
    [player] = beside._place.children
    assert player.views == [(1, 0), (2, 0), (3, 0)]  # each of them once
    beside.episode.value = 7
    assert player.views[-1] == (3, 7)
    beside.episode.value = -1
    assert "`episode` must be between 0" in beside.said.value and not beside._place.children
    press(widget, "Clear")
    assert "No agent yet" in beside.said.value and not beside.run.options


@pytest.mark.slow
def test_who_follows_sees_the_new_run_and_who_does_not_stays(explorer_and_watch):
    widget, beside = explorer_and_watch
    Slow.gate.release(1000)
    widget.run("a")
    widget.run("b")
    assert beside.run.options == ("a", "b") and beside.run.value == "b"
    beside.run.value, beside.follow.value = "a", False
    assert "a after 3 blocks" in beside.said.value
    widget.run("c")
    assert beside.run.value == "a" and "a after 3 blocks" in beside.said.value
    beside.follow.value = True
    widget.env = OTHER
    widget.run("d")
    assert "d after 3 blocks" in beside.said.value and beside._place.children
    widget.env = ENV
    assert beside._place.children and beside.run.value == "c"


def test_names_are_text_not_markup(slow):
    slow.gate.release(1000)
    widget = explorer(blocks=1)
    widget.run("<b>a & b</b>")
    assert "&lt;b&gt;a &amp; b" in widget._panel.table.value and "<b>" not in status(widget)


# Bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"segment_length": 0, "batching": "segments"},
            "`segment_length` must be between 1 and 51",
        ),
        ({"segment_length": 10**9}, "`segment_length` must be between 1 and 51; got 1000000000"),
        ({"gamma": 1.5}, "`gamma` must be between 0 and 1; got 1.5"),
        ({"gamma": float("nan")}, "`gamma` must be between 0 and 1; got nan"),
        ({"learning_rate": -1.0}, "`learning_rate` must be positive and finite"),
        ({"seeds": 0}, "`seeds` must be between 1 and 20; got 0"),
        ({"blocks": 10**6}, "`blocks` must be between 1 and 500"),
        ({"env": "popgym-RepeatFrist-v0"}, "Nearest: popgym-RepeatFirst"),
        ({"env": "Pendulum-v1"}, "`env` must have discrete actions"),
        ({"env": "popgym-RepeatFirstHard-v0"}, "`capacity` must hold"),
    ],
)
def test_bad_settings_are_told_in_a_line(settings: dict, message: str):
    widget = explorer(**settings)
    press(widget, "Train")
    until(lambda: message in status(widget))
    until(lambda: not widget.trials and not widget._panel.buttons["Train"].disabled)
    assert "Traceback" not in status(widget) and "<progress" not in status(widget)
    with pytest.raises(ValueError, match=message[:20]):
        widget.run()


def test_other_troubles_are_told_too(slow, monkeypatch: pytest.MonkeyPatch):
    def fail(self):
        raise MemoryError("no room for 10 GB")

    monkeypatch.setattr(Slow, "__iter__", fail)
    widget = explorer()
    press(widget, "Train")
    until(lambda: "MemoryError: no room" in status(widget))
    with pytest.raises(MemoryError):
        widget.run()


def test_a_setting_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"must .*agent, .* got `momentum`"):
        explorer().run(momentum=0.9)


# What is kept


def test_save_writes_what_is_shown_and_overwrites_nothing(slow, tmp_path: Path):
    slow.gate.release(1000)
    widget = explorer(blocks=2)
    widget._panel.folder.value = str(tmp_path / "kept")
    assert widget.save() is None and "Nothing to save" in status(widget)
    widget.run("a")
    widget.run("b", gamma=0.7)
    press(widget, "Save")
    result = json.loads((tmp_path / "kept" / "results.json").read_text())
    assert [run["name"] for run in result["runs"]] == ["a", "b"] and "date" in result
    assert result["runs"][1]["setup"]["config"]["gamma"] == 0.7
    assert result["runs"][0]["returns"] == [[0.1, 0.2], [0.1, 0.2]]  # [seed, block]
    assert result["runs"][0]["env_steps"] == [100, 200]
    assert (tmp_path / "kept" / "curves.png").read_bytes() == widget.png
    assert widget.save() == tmp_path / "kept-2" and str(tmp_path / "kept-2") in status(widget)
    assert not list(tmp_path.rglob("*.partial"))
    (tmp_path / "file").write_text("")
    widget._panel.folder.value = str(tmp_path / "file")
    assert widget.save() is None and "Cannot write to" in status(widget)


# The real thing, small


@pytest.mark.full
def test_it_trains_and_sliders_do_not_recompile(tmp_path: Path):
    widget = explorer()
    run = widget.run("first")
    returns = [point.returns for point in widget.trials[ENV, "first"].curve.points]
    np.testing.assert_array_equal(returns, [row["returns"] for row in run.history])
    assert run.setup.config.batch == 51 and run.setup.seeds == (0, 1)
    alone = Run(run.setup)
    np.testing.assert_array_equal(next(iter(alone)).returns, returns[0])
    block = program("dqn", ENV).block
    compiled = block._cache_size()
    widget.run("second", gamma=0.9, learning_rate=1e-2, blocks=4)
    assert block._cache_size() == compiled
    assert len(widget.trials[ENV, "second"].reports) == 4
    assert run.state is not None and len(AgentPlayer(run, seed=1).frames) == 51
    [player] = Watch(widget)._place.children  # what it plays, and saves, is the latest run
    assert player.frames == AgentPlayer(widget.trials[ENV, "second"].last_run).frames
    widget._panel.folder.value = str(tmp_path / "kept")
    assert widget.save() is not None
    run_from_disk = reopen(tmp_path / "kept" / "first")
    assert run_from_disk.history == run.history and run_from_disk.setup == run.setup
    jax.tree.map(np.testing.assert_array_equal, run_from_disk.state.net, run.state.net)


@pytest.mark.full
@pytest.mark.slow
def test_an_untrained_agent_can_be_watched():
    run = Run(Setup(env=ENV, config=TINY, seeds=(3,)))
    player = AgentPlayer(run)
    assert len(player.frames) == 51 and "no training" in player.title and run.state is None
    assert AgentPlayer(run, steps=5).frames == player.frames[:5]
    with pytest.raises(ValueError, match="`seed` must be between 0 and 0; got 1"):
        AgentPlayer(run, seed=1)


@pytest.mark.full
@pytest.mark.slow
def test_an_agent_is_played_with_parameters_that_are_arrays():
    config = dataclasses.replace(TINY, batch=100, capacity=1024)
    run = Run(Setup(env="DiscountingChain-bsuite", config=config, seeds=(0,)))
    assert len(AgentPlayer(run, steps=3).frames) == 3


def test_stopped_before_the_first_block_there_is_no_run_to_return(slow):
    widget = explorer()

    def stop() -> None:
        Slow.starts.acquire()
        until(lambda: widget._current is not None)
        widget.stop()

    threading.Thread(target=stop).start()
    with pytest.raises(RunError, match="stopped before its first block"):
        widget.run()


def test_an_interrupted_cell_stops_the_run(slow):
    widget = explorer()

    def interrupt() -> None:
        Slow.starts.acquire()
        while widget._current is None:
            time.sleep(0.01)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        widget.run()
    assert "stopped after block 0 of 3" in status(widget)
    widget.train()  # the cell again, at once
    assert "compiling" in status(widget)


# The picture


def curve(style: int, name: str = "run") -> Curve:
    rng, curve_so_far = np.random.default_rng(style), Curve(name, style)
    for block in range(16):
        curve_so_far.add(
            2560 * (block + 1), rng.normal(scale=0.1, size=5) + block / 16 - style / 10
        )
    return curve_so_far


def test_the_figure_keeps_its_artists():
    live, curves = LiveCurves(), [curve(i) for i in range(7)]
    live.draw(curves)
    artists = list(live.ax.get_children())
    png = live.draw(curves, end=41_000, bounds={"best": 1.0, "chance": -0.5})
    assert live.ax.get_children() == artists and png.startswith(b"\x89PNG")


def test_the_picture_shows_the_numbers():
    live, [first, second] = (
        LiveCurves(),
        [curve(0, "one"), curve(3, "a name that is much too long")],
    )
    live.draw([first, second], title="A task", end=50_000, bounds={"best": 1.0})
    line = live._lines[3]
    np.testing.assert_allclose(
        line.middle.get_ydata(), [point.interval[0] for point in second.points]
    )
    np.testing.assert_array_equal(line.middle.get_xdata(), [p.env_steps for p in second.points])
    seeds = np.reshape(line.seeds.get_ydata(), (5, 17))
    np.testing.assert_allclose(seeds[:, :16], np.array([p.returns for p in second.points]).T)
    assert np.isnan(seeds[:, 16]).all()
    assert line.label.get_text() == "a name that is much too l…" and line.label.get_visible()
    assert not live._lines[1].label.get_visible()
    assert [b.text.get_text() for b in live._bounds] == ["best", "", ""]
    live.draw([])
    assert live._hint.get_text() and not line.middle.get_visible()
    assert len(MARKS) == len(STYLES)


def test_only_pages_of_the_book_report_that_they_have_no_kernel():
    look, note = (TrainingExplorer()._panel.children[i].value for i in (0, -1))
    assert "needs a kernel" in note and "mmrl-static" in note
    rules = dict(re.findall(r"([\w. -]*\.mmrl-static) { display: (\w+); }", look))
    assert rules == {
        ".mmrl-training .mmrl-static": "none",
        ".bd-article .mmrl-training .mmrl-static": "block",
    }
