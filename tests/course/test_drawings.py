"""Pictures are well-formed, accessible, self-contained, and show the data that they were given."""

import re
import subprocess
import sys
import types
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from mmrl.course import drawings
from mmrl.course.drawings import cards, svg
from mmrl.course.drawings.tasks import DRAWINGS
from mmrl.envs.popgym import LEVELS

SVG = "{http://www.w3.org/2000/svg}"
RNG = np.random.default_rng(0)


def episode(obs, action, reward, next_obs=None):
    obs = np.asarray(obs, np.float32)
    follows = np.concatenate([obs[1:], obs[-1:]]) if next_obs is None else np.float32(next_obs)
    action, reward = np.asarray(action, np.int32), np.asarray(reward, np.float32)
    return types.SimpleNamespace(obs=obs, action=action, reward=reward, next_obs=follows)


def deck_episode(steps, target, start=0):
    """Random cards and answers, paid ±1 from step `start` on for the card `target(t)`."""
    suits, answers = RNG.integers(0, 4, (2, steps))
    right = np.array([suits[target(t)] == answers[t] for t in range(steps)])
    reward = np.where(right, 0.02, -0.02) * (np.arange(steps) >= start)
    return suits, answers, reward


def repeat_previous(steps=51, lag=3):
    suits, answers, reward = deck_episode(steps, lambda t: t - lag, lag)
    return episode(np.eye(4)[suits], answers, reward)


def repeat_first(steps=51):
    suits, answers, reward = deck_episode(steps, lambda t: 0)
    return episode(np.eye(4)[suits], answers, reward)


def autoencode(deck=12):
    steps = 2 * deck - 1
    suits, answers, reward = deck_episode(steps, lambda t: 2 * deck - 2 - t, deck - 1)
    suits[deck:] = 0
    watch = (np.arange(steps) < deck - 1).astype(int)
    return episode(np.concatenate([np.eye(2)[watch], np.eye(4)[suits]], 1), answers, reward)


def count_recall(types_, steps=51):
    values, queries = RNG.integers(0, types_, (2, steps))
    counts = [(values[: t + 1] == queries[t]).sum() for t in range(steps)]
    answers = counts + RNG.integers(0, 2, steps)
    obs = np.concatenate([np.eye(types_)[values], np.eye(types_)[queries]], 1)
    return episode(obs, answers, np.where(answers == counts, 0.02, -0.02))


def cart_pole(steps=60, columns=(0, 2)):
    state = np.cumsum(RNG.normal(0, 0.01, (steps, 4)), 0).astype(np.float32)
    return episode(state[:, columns], RNG.integers(0, 2, steps), np.full(steps, 1 / 200)), state


def catch(steps=9):
    boards = np.zeros((steps, 10, 5))
    boards[np.arange(steps), np.arange(steps), 1] = boards[:, 9, 3] = 1
    return episode(boards, np.arange(steps) % 3, np.arange(steps) == steps - 1)


def bandit(arms=10, steps=200):
    odds = RNG.random(arms).astype(np.float32)
    action = RNG.integers(0, arms, steps)
    wins = (RNG.random(steps) < odds[action]).astype(int)
    obs = np.eye(2)[np.concatenate([[0], wins[:-1]])]
    return episode(obs, action, np.where(wins, 1, -1) / steps), np.tile(odds, (steps, 1))


def mine_sweeper():
    """Looks at squares 0, 5, 0 (again) and 3, a mine; square 12 hides the other one."""
    squares = np.zeros(16, int)
    squares[[3, 12]] = 1
    near = np.eye(3)[[0, 0, 0, 1]]
    steps = episode(np.eye(3)[[0, 0, 0, 0]], [0, 5, 0, 3], [1 / 14, 1 / 14, -1 / 24, -0.57], near)
    return steps, np.tile(np.eye(3)[squares].reshape(1, -1), (4, 1)).astype(np.float32)


def higher_lower(steps=51):
    ranks, guesses = RNG.integers(0, 13, steps + 1), RNG.integers(0, 2, steps)
    right = (ranks[1:] > ranks[:-1]) == (guesses == 0)
    reward = np.where(ranks[1:] == ranks[:-1], 0, np.where(right, 1, -1) / 52)
    return episode(np.eye(13)[ranks[:-1]], guesses, reward)


def battleship(steps=60):
    """The ship is in squares 0 to 11; square 0 is tried twice."""
    ships, guesses = np.arange(64) < 12, np.append(RNG.permutation(64)[: steps - 2], [0, 0])
    new = np.array([g not in guesses[:t] for t, g in enumerate(guesses)])
    hits = ships[guesses] & new
    follows = np.eye(2)[hits.astype(int)]
    state = np.concatenate([np.eye(2)[ships.astype(int)].ravel(), np.zeros(130)])
    steps_ = episode(np.roll(follows, 1, 0), guesses, np.where(hits, 1 / 12, -1 / 52), follows)
    return steps_, np.tile(state.astype(np.float32), (steps, 1))


def concentration(cards, types_, steps=60):
    """Cards 0 to 9 are up at the end, and card 20 was just turned over."""
    table = np.full((steps, cards), types_)
    table[-1, [*range(10), 20]] = np.arange(11) % types_
    follows = np.eye(types_ + 1)[table].reshape(steps, -1)
    actions = np.append(RNG.integers(0, cards, steps - 1), 20)
    return episode(np.roll(follows, 1, 0), actions, np.zeros(steps), follows)


def labyrinth(steps=20):
    """In at the left border, and to the right along the second row of free squares."""
    grid = np.ones((11, 11), int)
    grid[3, 1:10], grid[3, 0] = 0, 2
    places = np.stack([np.full(steps, 3), np.minimum(np.arange(steps), 9)], 1)
    walls = np.pad(grid, ((0, 3), (0, 3)), constant_values=1)
    views = np.stack([walls[r - 1 : r + 2, max(c - 1, 0) :][:, :3] for r, c in places])
    views[0, :, 2] = 1
    obs = np.eye(5)[np.concatenate([views.reshape(steps, 9), np.ones((steps, 1), int)], 1)]
    state = np.concatenate([np.zeros((steps, 605)), np.eye(11)[places].reshape(steps, -1)], 1)
    return episode(obs.reshape(steps, 50), np.ones(steps), np.full(steps, -1 / 1024)), state


def swing(steps=60):
    angle = np.cumsum(RNG.normal(0, 0.2, steps))
    place = np.stack([np.cos(angle), np.sin(angle)], 1)
    state = np.concatenate([place, RNG.normal(0, 1, (steps, 1))], 1).astype(np.float32)
    torque = RNG.uniform(-2, 2, (steps, 1))
    steps_of_pole = episode(place, np.zeros(steps), np.full(steps, 0.001))
    steps_of_pole.action = torque
    return steps_of_pole, state


def plain_env(length=30):
    """An environment without a picture of its own: a dictionary of a board and an integer."""
    time = np.arange(length)
    board = np.zeros((length, 3, 4))
    board[:, 1, 2] = np.sin(time)
    obs = {"board": board, "clock": time, "goal": np.full(length, 7)}
    steps = types.SimpleNamespace(
        obs=obs, action=time % 3, reward=np.where(time % 5, 0.0, -1.0), next_obs=obs
    )
    return steps, None


EPISODES = {
    "popgym-HigherLowerEasy-v0": (higher_lower(), None),
    "popgym-VelocityOnlyCartpoleEasy-v0": cart_pole(columns=(1, 3)),
    "popgym-BattleshipEasy-v0": battleship(),
    "popgym-ConcentrationEasy-v0": (concentration(52, 2), None),
    "popgym-ConcentrationHard-v0": (concentration(52, 13), None),
    "popgym-LabyrinthEscapeEasy-v0": labyrinth(),
    "popgym-PositionOnlyPendulumEasy-v0": swing(),
    "popgym-RepeatPreviousEasy-v0": (repeat_previous(), None),
    "popgym-RepeatPreviousPaper-v0": (repeat_previous(103, 9), None),
    "popgym-RepeatFirstEasy-v0": (repeat_first(), None),
    "popgym-RepeatFirstMedium-v0": (repeat_first(415), None),
    "popgym-AutoencodeEasy-v0": (autoencode(), None),
    "popgym-CountRecallEasy-v0": (count_recall(2), None),
    "popgym-CountRecallMedium-v0": (count_recall(4, 103), None),
    "popgym-CountRecallHard-v0": (count_recall(13), None),
    "popgym-PositionOnlyCartPoleEasy-v0": cart_pole(),
    "popgym-NoisyPositionOnlyCartPoleHard-v0": cart_pole(),
    "CartPole-v1": (cart_pole(columns=(0, 1, 2, 3))[0], None),
    "Catch-bsuite": (catch(), None),
    "popgym-MultiarmedBanditEasy-v0": bandit(),
    "popgym-MultiarmedBanditHard-v0": bandit(30, 600),
    "popgym-MineSweeperEasy-v0": mine_sweeper(),
    "adapter:Unknown-v0": plain_env(),
}


def draw(env_id, **kwargs):
    """The root of a whole episode's picture, with the hidden state where there is one."""
    steps, states = EPISODES[env_id]
    return ET.fromstring(drawings.episode_svg(env_id, steps, hidden=states, **kwargs))


def marks(root, name="data-mark"):
    return [e.get(name) for e in root.iter() if e.get(name) is not None]


def texts(root):
    return [e.text for e in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("frame", [None, 0, 3])
@pytest.mark.parametrize("env_id", EPISODES)
def test_one_mark_per_step(env_id, frame):
    steps, _ = EPISODES[env_id]
    until = len(steps.reward) if frame is None else frame + 1
    assert len(marks(draw(env_id, frame=frame))) == until


@pytest.mark.parametrize("env_id", EPISODES)
@pytest.mark.parametrize("frame", [None, 3])
def test_accessible_and_self_contained(env_id, frame):
    steps, states = EPISODES[env_id]
    text = drawings.episode_svg(env_id, steps, frame=frame, hidden=states)
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title.text == root.get("aria-label") and len(desc.text) > 20
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert text.count("http") == 1 and "href" not in text and "url(" not in text
    assert "prefers-color-scheme:dark" in root.find(f"{SVG}style").text
    tags = {"svg", "title", "desc", "style", "g", "rect", "circle", "line", "path", "text"}
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= tags
    assert len(text) < 1000 * len(steps.reward) + 6000


@pytest.mark.parametrize("env_id", EPISODES)
@pytest.mark.parametrize("frame", [None, 0, 3])
def test_nothing_is_clipped(env_id, frame):
    root = draw(env_id, frame=frame)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    for element in root.iter():
        box = {k: float(element.get(k, 0)) for k in ("x", "y", "width", "height", "cx", "cy", "r")}
        ends = [float(element.get(k)) for k in ("x1", "x2") if element.get(k)]
        if element.tag == f"{SVG}text":
            wide = 0.62 * float(element.get("font-size")) * len(element.text or "")
            shift = {"end": 1.0, "middle": 0.5}.get(element.get("text-anchor"), 0.0)
            ends = [box["x"] - shift * wide, box["x"] + (1 - shift) * wide]
            box["width"] = 0
        elif element.tag in (f"{SVG}rect", f"{SVG}circle"):
            ends = [box["x"] + box["cx"] - box["r"], box["x"] + box["width"] + box["cx"] + box["r"]]
        low = box["y"] + box["height"] + box["cy"] + box["r"]
        assert all(0 <= x <= width for x in ends) and 0 <= low <= height, ET.tostring(element)


def test_headings_do_not_collide():
    for env_id in EPISODES:
        left, right = list(draw(env_id).iter(f"{SVG}text"))[:2]
        end = 14 + 0.62 * 13 * len(left.text)
        assert end < float(right.get("x")) - 0.58 * 12 * len(right.text), env_id


def test_a_strip_shows_the_cards_and_the_verdicts():
    steps, _ = EPISODES["popgym-RepeatPreviousEasy-v0"]
    root = draw("popgym-RepeatPreviousEasy-v0")
    assert marks(root, "data-card") == [str(c) for c in steps.obs.argmax(-1)]
    names = {0: "none", 1: "right", -1: "wrong"}
    assert marks(root) == [names[int(s)] for s in np.sign(steps.reward)]
    assert "say the suit of 3 steps ago" in root.find(f"{SVG}title").text
    right, wrong = (steps.reward > 0).sum(), (steps.reward < 0).sum()
    assert f"{right} right, {wrong} wrong, 3 not asked" in root.find(f"{SVG}desc").text


def ring_number(root):
    """The step number above the ring, or None."""
    for element in root.iter(f"{SVG}rect"):
        if element.get("data-ring") == "asked":
            x = float(element.get("x")) + 1.5 + 14
            over = [t.text for t in root.iter(f"{SVG}text") if float(t.get("x")) == x]
            return int(over[0])
    return None


@pytest.mark.parametrize(
    ("env_id", "frame", "number"),
    [
        ("popgym-RepeatPreviousEasy-v0", 2, None),
        ("popgym-RepeatPreviousEasy-v0", 3, 0),
        ("popgym-RepeatPreviousPaper-v0", 50, 41),
        ("popgym-RepeatFirstEasy-v0", 40, 0),
        ("popgym-AutoencodeEasy-v0", 10, None),
        ("popgym-AutoencodeEasy-v0", 11, 11),
        ("popgym-AutoencodeEasy-v0", 22, 0),
    ],
)
def test_a_frame_rings_the_card_asked_for(env_id, frame, number):
    root = draw(env_id, frame=frame)
    assert ring_number(root) == number
    assert len(marks(root)) <= frame + 1


def test_a_frame_shows_the_last_cards_only():
    steps, _ = EPISODES["popgym-RepeatFirstEasy-v0"]
    root = draw("popgym-RepeatFirstEasy-v0", frame=40)
    suits = steps.obs.argmax(-1)
    assert marks(root, "data-card") == [str(c) for c in [suits[0], *suits[30:41]]]
    assert "…" in texts(root)


def test_autoencode_hides_the_cards_while_playing():
    steps, _ = EPISODES["popgym-AutoencodeEasy-v0"]
    cards = marks(draw("popgym-AutoencodeEasy-v0"), "data-card")
    assert cards == [str(c) for c in steps.obs[:12, 2:].argmax(-1)] + ["-1"] * 11


@pytest.mark.parametrize(("level", "types_"), [("Easy", 2), ("Medium", 4), ("Hard", 13)])
def test_count_recall_counts(level, types_):
    env_id = f"popgym-CountRecall{level}-v0"
    steps, _ = EPISODES[env_id]
    root = draw(env_id)
    values = steps.obs[:, :types_].argmax(-1)
    assert marks(root, "data-card") == [str(v) for v in values]
    counts = np.bincount(values, minlength=types_).tolist()
    assert str(counts) in root.find(f"{SVG}desc").text
    assert texts(root)[-types_:] == [str(c) for c in counts] or types_ == 13


def test_cart_pole_leans_and_moves():
    obs = np.array([[0.5, 0.1]] * 30, np.float32)
    states = np.array([[0.5, -1.0, 0.1, 0.0]] * 30, np.float32)
    actions = np.arange(30, dtype=np.int32) % 2
    root = ET.fromstring(drawings.cart_pole(obs, actions, hidden=states))
    pole = next(e for e in root.iter(f"{SVG}line") if e.get("data-pole") == "true")
    x1, y1, x2, y2 = (float(pole.get(k)) for k in ("x1", "y1", "x2", "y2"))
    assert x1 > 260 and y2 < y1 and np.isclose((x2 - x1) / (y1 - y2), np.tan(0.1), atol=0.01)
    assert sorted(marks(root, "data-ghost")) == ["1", "2", "3", "4", "5"]
    assert marks(root) == ["left", "right"] * 15
    assert any("velocity −1.00 m/s (hidden)" in t for t in texts(root))
    bare = ET.fromstring(drawings.cart_pole(obs, actions))
    assert not any("velocity" in t for t in texts(bare))


def test_noise_is_drawn_as_a_second_pole():
    steps, states = cart_pole()
    noisy = types.SimpleNamespace(**{**vars(steps), "obs": steps.obs + 0.2})
    pictures = [drawings.episode_svg("popgym-NoisyPositionOnlyCartPoleEasy-v0", s, hidden=states)
             for s in (steps, noisy)]  # fmt: skip
    assert ['data-pole="seen"' in d for d in pictures] == [False, True]


def test_bandit_adds_up():
    steps, states = EPISODES["popgym-MultiarmedBanditEasy-v0"]
    root = draw("popgym-MultiarmedBanditEasy-v0")
    wins = steps.reward > 0
    assert marks(root) == ["paid" if w else "lost" for w in wins]
    for arm in range(10):
        pulls = steps.action == arm
        assert f"{(wins & pulls).sum()} / {pulls.sum()}" in texts(root)
    outline = [e for e in root.iter(f"{SVG}rect") if e.get("class") == "mm-stroke-ink"]
    widths = [float(e.get("width")) for e in outline]
    np.testing.assert_allclose(widths, 130 * states[0], atol=0.06)


def test_mine_sweeper_shows_numbers_and_mines():
    root = draw("popgym-MineSweeperEasy-v0")
    assert marks(root) == ["gain", "gain", "loss", "loss"]
    assert marks(root, "data-square") == [str(i) for i in range(16)]
    assert marks(root, "data-mine").count("hit") == 1 == marks(root, "data-mine").count("hidden")
    assert "0, 2" in texts(root)
    cover = next(e for e in root.iter() if e.get("data-mine") == "hidden")
    square = next(e for e in root.iter() if e.get("data-square") == "12")
    middle, top = (float(v) for v in re.match(r"M(\S+) ([^L]+)L", cover.get("d")).groups())
    assert middle == float(square.get("x")) + 22
    assert top - float(square.get("y")) == pytest.approx(11)
    steps, _ = EPISODES["popgym-MineSweeperEasy-v0"]
    blind = ET.fromstring(drawings.episode_svg("popgym-MineSweeperEasy-v0", steps))
    assert marks(blind, "data-mine") == ["hit"]


def test_battleship_shows_hits_and_ships():
    steps, _ = EPISODES["popgym-BattleshipEasy-v0"]
    root = draw("popgym-BattleshipEasy-v0")
    squares = {*steps.action.tolist()}
    assert marks(root, "data-guess").count("hit") == len(squares & {*range(12)})
    assert marks(root, "data-guess").count("miss") == len(squares - {*range(12)})
    assert len(marks(root, "data-ship")) == 12 - len(squares & {*range(12)})


def test_concentration_shows_the_cards_in_view():
    root = draw("popgym-ConcentrationHard-v0")
    assert marks(root, "data-card") == [str(i % 13) for i in range(11)]
    assert marks(root, "data-ring") == ["last"]


def test_a_labyrinth_shows_what_was_seen_of_it():
    squares = np.reshape(marks(draw("popgym-LabyrinthEscapeEasy-v0"), "data-square"), (11, 11))
    assert squares[3].tolist() == ["start", *["free"] * 9, "wall"]
    assert (squares[[2, 4]] == "wall").all() and (squares[[0, 1, 5, 10]] == "unseen").all()
    steps, _ = EPISODES["popgym-LabyrinthEscapeEasy-v0"]
    blind = ET.fromstring(drawings.episode_svg("popgym-LabyrinthEscapeEasy-v0", steps, frame=5))
    view = ["wall"] * 3 + ["free"] * 3 + ["wall"] * 3
    assert marks(blind, "data-square") == view


def test_a_pendulum_hangs_where_it_is():
    obs = np.array([[0.0, 1.0]] * 5, np.float32)  # θ = 90°
    root = ET.fromstring(drawings.pendulum(obs, np.zeros(5, np.float32)))
    rod = next(e for e in root.iter(f"{SVG}line") if e.get("data-rod") == "true")
    x1, y1, x2, y2 = (float(rod.get(k)) for k in ("x1", "y1", "x2", "y2"))
    assert x2 - x1 == -78 and y2 == y1


def test_only_the_first_episode_is_drawn_and_wrappers_are_ignored():
    steps = repeat_previous(20)
    plain = drawings.episode_svg("popgym-RepeatPreviousEasy-v0", steps)
    twice = types.SimpleNamespace(
        obs=np.tile(np.pad(steps.obs, ((0, 0), (0, 6)), constant_values=1), (2, 1)),
        action=np.tile(steps.action, 2),
        reward=np.tile(steps.reward, 2),
        next_obs=np.tile(np.pad(steps.next_obs, ((0, 0), (0, 6))), (2, 1)),
        begin=np.arange(40) % 20 == 0,
    )
    assert drawings.episode_svg("popgym-RepeatPreviousEasy-v0", twice) == plain


def test_a_transition_will_do():
    from mmrl import rollout

    steps, states = EPISODES["popgym-MineSweeperEasy-v0"]
    begin = np.array([True, False, False, False])
    tape = rollout.Transition(
        **vars(steps), begin=begin, terminated=~begin, truncated=np.zeros(4, bool)
    )
    same = drawings.episode_svg("popgym-MineSweeperEasy-v0", steps, hidden=states)
    assert drawings.episode_svg("popgym-MineSweeperEasy-v0", tape, hidden=states) == same


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: drawings.episode_svg("popgym-RepeatFirstEasy-v0", repeat_first(5), frame=5),
            r"`frame` must be a step in 0\.\.4",
        ),
        (
            lambda: drawings.episode_svg(
                "popgym-RepeatFirstEasy-v0",
                types.SimpleNamespace(
                    obs=np.zeros((2, 5, 4)),
                    action=np.zeros((2, 5), int),
                    reward=np.zeros((2, 5)),
                    next_obs=np.zeros((2, 5, 4)),
                ),
            ),
            r"`steps` must .*\[2, 5\]",
        ),
    ],
)
def test_what_cannot_be_drawn(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_text_is_escaped():
    text = drawings.card_strip(np.array([0, 1]), title='<b> & "c"', note="<i>")
    assert ET.fromstring(text).get("aria-label") == '<b> & "c"'


def test_a_strip_of_cards_alone():
    root = ET.fromstring(drawings.card_strip(np.array([0, cards.NOTHING, cards.GAP, 3])))
    assert marks(root, "data-card") == ["0", "-1", "3"] and not marks(root)


def luminance(colour):
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (r, g, b)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
def test_contrast(theme):
    """WCAG 2.1: 4.5 for text, 3 for the shapes that carry meaning."""
    paper = luminance(svg.ROLES["paper"][theme])
    for role, least in {"ink": 4.5, "dim": 4.5, "good": 3.0, "bad": 3.0}.items():
        shade = luminance(svg.ROLES[role][theme])
        ratio = (max(shade, paper) + 0.05) / (min(shade, paper) + 0.05)
        assert ratio >= least, (role, ratio)


def test_it_needs_neither_jax_nor_gymnax():
    program = (
        "import sys, numpy as np; from mmrl.course import drawings;"
        "drawings.card_strip(np.array([0, 1]));"
        "print([m for m in ('jax', 'gymnax', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert re.sub(r"\s", "", out.stdout) == "[]", out.stderr


def random_episode(env_id):
    """One episode of random actions in the real environment, and its hidden states."""
    import jax

    from mmrl import envs, rollout

    env, params = envs.make(env_id)

    def policy(state, obs, begin, key):
        return state, jax.random.randint(key, (), 0, env.num_actions)

    def step(carry, keys):
        state = env.state_obs(carry.env_state, params)
        carry, transition = rollout.unroll(policy, env, params, carry, keys[None])
        return carry, (jax.tree.map(lambda x: x[0], transition), state)

    @jax.jit
    def run(key):
        keys = jax.random.split(key, (params.max_steps_in_episode, 2))
        return jax.lax.scan(step, rollout.start(env, params, None, key), keys)[1]

    return jax.device_get(run(jax.random.key(0)))


def test_an_unknown_environment_shows_what_changes_most():
    root = draw("adapter:Unknown-v0", frame=12)
    words = texts(root)
    assert {"o[6]", "o[12]"} <= set(words)  # the moving square, and the clock
    assert words[words.index("o[6]") + 1] == f"{np.sin(12):.3g}".replace("-", "−")
    assert words[words.index("o[12]") + 1] == "12" and "action 0" in words
    lines = [e for e in root.iter(f"{SVG}path") if e.get("d").startswith("M56 ")]
    assert len(lines) == 8  # of 14 features
    assert {e.get("d").count("V") for e in lines} == {13}  # one per step


def test_features_and_scales_stay_while_the_episode_plays():
    """A feature that begins to move late is in view from the first step on."""
    obs = np.zeros((20, 12))
    obs[:, :8] = np.linspace(1, 2, 20)[:, None]
    obs[10:, 11] = 5.0
    steps = episode(obs, np.zeros(20), np.zeros(20))
    names = set()
    for frame in (0, 5, 19):
        root = ET.fromstring(drawings.episode_svg("adapter:Unknown-v0", steps, frame=frame))
        names.add(tuple(x for x in texts(root) if x.startswith("o[")))
        lines = [e.get("d") for e in root.iter(f"{SVG}path") if e.get("d").startswith("M56 ")]
        assert float(lines[0].split("V")[1].split("H")[0]) == pytest.approx(62, abs=0.6)
    (name,) = names
    assert name[0] == "o[0]" and name[-1] == "o[11]" and len(name) == 8


def test_numbers_that_are_not_finite_and_long_actions_are_drawn():
    obs = np.ones((6, 3))
    obs[:, 0], obs[:, 1], obs[2:, 2] = np.nan, np.inf, -np.inf
    steps = episode(obs, np.zeros(6), np.zeros(6))
    steps.action = np.linspace(-1, 1, 240).reshape(6, 40)
    for frame in (None, 0, 4):
        root = ET.fromstring(drawings.episode_svg("adapter:Unknown-v0", steps, frame=frame))
        (action,) = [x for x in texts(root) if x.startswith("action")]
        assert "\n" not in action and len(action) < 50
        assert not any("nan" in e.get("d") for e in root.iter(f"{SVG}path"))


@pytest.mark.parametrize(
    ("env_id", "shape", "options"),
    [
        ("popgym-RepeatPreviousEasy-v0", (20,), {}),  # the state
        ("popgym-RepeatPreviousEasy-v0", (8, 8, 3), {}),  # pixels
        ("popgym-RepeatFirstEasy-v0", (8,), {"observe": "state"}),
        ("popgym-PositionOnlyCartPoleEasy-v0", (4,), {"observe": "state"}),
        ("popgym-LabyrinthEscapeEasy-v0", (627,), {}),
    ],
)
def test_another_view_of_a_task_is_drawn_as_numbers(env_id, shape, options):
    steps = episode(RNG.normal(size=(9, *shape)), np.zeros(9), np.ones(9))
    root = ET.fromstring(drawings.episode_svg(env_id, steps, frame=5, **options))
    assert any(x.startswith("o[") for x in texts(root)) and not marks(root, "data-card")


OWN_SIZES = {  # of each published task, at its three levels
    "Autoencode": (6, 6, 6),
    "Battleship": (2, 2, 2),
    "Concentration": (156, 312, 728),
    "CountRecall": (4, 8, 26),
    "HigherLower": (13, 13, 13),
    "LabyrinthEscape": (50, 50, 50),
    "LabyrinthExplore": (50, 50, 50),
    "MineSweeper": (3, 7, 10),
    "MultiarmedBandit": (2, 2, 2),
    "NoisyPositionOnlyCartPole": (2, 2, 2),
    "NoisyPositionOnlyPendulum": (2, 2, 2),
    "PositionOnlyCartPole": (2, 2, 2),
    "PositionOnlyPendulum": (2, 2, 2),
    "RepeatFirst": (4, 4, 4),
    "RepeatPrevious": (4, 4, 4),
    "VelocityOnlyCartpole": (2, 2, 2),
}


def test_every_picture_of_a_published_task_is_tested():
    assert {*OWN_SIZES} == {*DRAWINGS} & {*LEVELS}


@pytest.mark.parametrize("task", OWN_SIZES)
def test_every_published_task_has_a_picture_of_its_own(task):
    assert task in DRAWINGS
    for level, size in zip(("Easy", "Medium", "Hard"), OWN_SIZES[task], strict=True):
        steps = episode(np.zeros((2, size)), np.zeros(2), np.zeros(2))
        steps.action = np.zeros((2, 1)) if task.endswith("Pendulum") else steps.action
        root = ET.fromstring(drawings.episode_svg(f"popgym-{task}{level}-v0", steps, frame=1))
        assert "o[0]" not in texts(root)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["RepeatPrevious", "RepeatFirst", "Autoencode", "CountRecall"])
def test_a_real_episode_is_judged_as_it_was_paid(task):
    """An answer is right in the picture (ringed card, count of the type) if and only if it paid."""
    env_id = f"popgym-{task}Easy-v0"
    tape, _ = random_episode(env_id)
    for frame in range(4, len(tape.reward), 7):
        root = ET.fromstring(drawings.episode_svg(env_id, tape, frame=frame))
        if task == "CountRecall":
            counts = re.findall(r"\d+", root.find(f"{SVG}desc").text.split("[")[1])
            answer = int(counts[tape.obs[frame, 2:].argmax()])
        elif ring_number(root) is None:
            assert tape.reward[frame] == 0
            continue
        else:
            answer = tape.obs[ring_number(root), -4:].argmax()
        assert (answer == tape.action[frame]) == (tape.reward[frame] > 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", ["PositionOnlyCartPole", "NoisyPositionOnlyCartPole", "MultiarmedBandit", "MineSweeper"]
)
def test_a_real_episode_is_drawn(task):
    env_id = f"popgym-{task}Easy-v0"
    tape, states = random_episode(env_id)
    root = ET.fromstring(drawings.episode_svg(env_id, tape, hidden=states))
    last = np.flatnonzero(tape.last)
    assert len(marks(root)) == (last[0] + 1 if len(last) else len(tape.last))
    assert marks(root, "data-mine").count("hidden") + marks(root, "data-mine").count("hit") == (
        2 if task == "MineSweeper" else 0
    )
