"""The English of the project stays below a ceiling of phrases that read as translated."""

from pathlib import Path

import pytest

from tests.helpers import voice

# Hits per 10,000 words. Lower a ceiling when a text gets better; the goal for each kind is 15.
CEILINGS = {
    "book pages": 15,
    "comments": 15,
    "docstrings": 15,
    "errors": 15,
    "notebooks": 15,
    "top-level pages": 15,
}


@pytest.mark.parametrize("kind", CEILINGS)
def test_phrases_that_read_as_translated_stay_rare(kind: str):
    rate = voice.rates()[kind]
    assert rate <= CEILINGS[kind], (
        f"{rate:.1f} hits per 10,000 words of {kind}; `python tests/helpers/voice.py --list "
        "PHRASE` lists them"
    )


def test_every_kind_of_text_has_a_ceiling():
    assert set(voice.rates()) == set(CEILINGS)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("The tape stands beside the buffer.", ["beside"]),
        ("Who trains twice, loses.", ["headless who"]),
        ("It says nothing.", ["nobody, nothing", "says, tells"]),
        ("Two probes tell them apart.", []),
        ("Return the state after the last step.", []),
    ],
)
def test_a_phrase_is_counted_unless_it_is_allowed(words: str, names: list[str]):
    text = voice.Text(Path("a.py"), 1, "docstrings", words)
    assert sorted(hit.name for hit in voice.hits(text)) == names
