"""Links: a setup survives one, and is what the command line makes of the same words."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from mmrl.agents import AGENTS
from mmrl.commands import explore as command
from mmrl.commands.options import parse
from mmrl.course import links, plain
from mmrl.course.app import explore
from mmrl.course.app.page import App, gallery, settings
from mmrl.runs import Setup, describe

BOOK = Path(__file__).parents[2] / "book"
ENV = "popgym-RepeatPreviousEasy-v0"
CONFIGS = {"dqn": plain.DQN, "r2d2": plain.R2D2, "ppo": plain.PPO, "ppg": plain.PPG}
CONFIGS["clear"] = dataclasses.replace(
    plain.CLEAR, memory="gru", memory_sizes=(("state_size", 7),), gamma=1 / 3
)


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_a_setup_survives_a_link_and_means_the_same_to_mmrl_train(agent: str):
    setup = Setup(ENV, CONFIGS.get(agent), (0, 1), agent)
    assert describe(links.read("?" + links.query(setup))) == describe(setup)
    program, command, *words = shlex.split(links.command(setup))
    assert (program, command) == ("mmrl", "train")
    assert describe(parse(words)[1]) == describe(setup)


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("env=popgym-RepeatFrist-v0", "`env` must name a registered environment; got 'popgym-Rep"),
        ("env=os:path", "`env` must name a registered environment; got 'os:path'. Nearest: "),
        ("agent=dqq", "`agent` must be one of"),
        ("memory=os:path", "`memory` must be one of "),
        ("memory_sizes=depth+3", "`memory_sizes` of 'lru' must be among"),
        ("memory_sizes=state_size", "`memory_sizes` must be alternating names and whole numbers"),
        ("gamma=abc", "`gamma` must be a number; got 'abc'. Fix the link, or remove this setting"),
        ("gamma=1.5", "`gamma` must be between 0 and 1; got 1.5"),
        ("gamma=0.5&gamma=0.6", "`gamma` must not occur twice"),
        ("gama=0.5", "`gama` must be a setting of dqn; nearest: gamma"),
        ("dueling=maybe", "`dueling` must be yes or no; got 'maybe'"),
        ("batch=1e3", "`batch` must be a whole number; got '1e3'"),
        ("seeds=5+7", "`seeds` must count from 0, such as 0 1 2; got '5 7'"),
        ("blocks=1000", "`blocks` must be at most 500 here; got 1,000. Fix the link"),
        ("batch=1000000000000", "`batch` must be at most 10,000 here; got 1,000,000,000,000"),
        ("memory_sizes=state_size+1000000", "`state_size` must be at most 1,024 here; got 1,000"),
        ("rollout=5000&environments=500", "`block` × `rollout` × `environments` must be at most"),
        ("seeds=" + "+".join(map(str, range(21))), "`seeds` must be at most 20 here; got 21"),
        (
            "env=popgym-MineSweeperHard-v0&capacity=1000000&seeds=" + "+".join(map(str, range(20))),
            "must have at most 500,000,000 entries here; got 6",
        ),
        ("show=ScanPlyer", "`show` must name a widget; got 'ScanPlyer'. Nearest: ScanPlayer"),
        ("show=ScanPlayer&level=-2", "`level` must be at least 0; got -2"),
        ("show=ScanPlayer&method=x", "`method` must be one of sequential, hillis_steele"),
        ("show=ScanPlayer&values=3", "`values` must be a setting of ScanPlayer, one of"),
    ],
)
def test_a_bad_link_is_told_in_a_sentence(link: str, message: str):
    app = explore(link)
    assert message in app.said.value.replace("&#x27;", "'")
    assert app.explorer.setup == links.START and app.widget is None


@pytest.mark.slow
def test_links_in_the_book_can_be_followed():
    pages = [page.read_text("utf-8") for page in BOOK.glob("*.md")]
    matches = {link for page in pages for link in re.findall(r"localhost:8866/[^)`\s]+", page)}
    assert len(matches) >= 5
    assert not [link for link in matches if "cannot be opened" in explore(link).said.value]


@pytest.mark.slow
def test_a_link_of_the_app_leads_back_to_what_was_in_view(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VOILA_REQUEST_URL", "http://host:8866/?agent=ppo&gamma=0.9&theme=dark")
    app = explore()
    assert app.explorer.agent == "ppo" and app.explorer.gamma == 0.9
    app.explorer.memory, app.explorer.seeds = "gru", 2
    other = dict(zip(app.explorer._panel.kinds, app.explorer._panel.more.children, strict=True))
    other["epochs"].value = "2"
    link = app.share()
    assert link.startswith("http://host:8866/?") and link in app.shared.value.replace("&amp;", "&")
    assert explore(link).explorer.setup == app.explorer.setup
    assert app.explorer.setup.config.epochs == 2
    other["epochs"].value = "two"
    assert app.share() == "" and "`epochs` must be a whole number" in app.shared.value
    app.explorer.agent = "dqn"  # with its own settings
    assert app.explorer.setup.config.gamma == AGENTS["dqn"].Config().gamma


def test_a_link_leads_to_a_widget_with_its_settings():
    app = explore("show=ScanPlayer&method=blelloch&length=12")
    assert app.widget is not None and app.widget.length == 12
    assert "show=ScanPlayer&length=12&method=blelloch" in app.share()
    assert len(gallery()) > 20 and "gain" in settings(gallery()["ScanPlayer"])
    assert App().share().endswith("?" + links.query(links.START))


def test_a_page_that_was_closed_takes_its_kernel_with_it():
    """Options that Voilà does not know it leaves out without a word."""
    from jupyter_server.services.kernels.kernelmanager import MappingKernelManager

    traits = MappingKernelManager().traits()
    pairs = [word.partition("MappingKernelManager.")[2].split("=") for word in command.words()]
    set_to = {name: traits[name].from_string(value[0]) for name, *value in pairs if name}
    assert set_to["cull_idle_timeout"] > 2 * set_to["cull_interval"] > 0
    assert not MappingKernelManager().cull_connected  # a page in view keeps its own
