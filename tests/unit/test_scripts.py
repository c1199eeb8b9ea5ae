"""The joined scripts: what a verb doesn't ask isn't made, and constants cost nothing."""

from __future__ import annotations

import re

import pytest

from authguard._core.plan import NUMBERS
from authguard._core.scripts import script

ALL = frozenset(NUMBERS)
ASKED = {
    "acquire": {"open", "refuses", "charge", "refused", "verdict"},
    "peek": {"open", "refuses", "verdict"},
    "refuse": {"open", "refuses", "refused", "verdict"},
    "settle": {"open", "settle"},
    "clear": {"open", "clear"},
    "recover": {"open", "refuses", "clear"},
    "inspect": {"open", "inspect"},
}
EVERY = set.union(*ASKED.values())


@pytest.mark.parametrize("algorithm", NUMBERS)
@pytest.mark.parametrize("verb", ASKED)
def test_a_script_has_what_its_verb_asks(verb: str, algorithm: str) -> None:
    """An algorithm's table has what the verb asks, and the script makes nothing else of it."""
    text = script(verb, frozenset({algorithm})).text
    (table,) = re.findall(rf'\{{ name = "{algorithm}".* \}}', text)
    given = {name for name, its in re.findall(r"(\w+) = (\w+)", table) if name == its}
    left_out = {"charge", "settle"} if algorithm == "block" else set()
    assert given == ASKED[verb] - left_out
    made = re.findall(r"^local function (\w+)\(", text, re.MULTILINE)
    own = [name for name in made if name in EVERY]
    if not algorithm.endswith("bucket"):  # bucket.lua is whole: two build on it
        assert set(own) <= ASKED[verb]
        assert len(own) == len(set(own))


@pytest.mark.parametrize("verb", ASKED)
def test_constants_are_written_in(verb: str) -> None:
    """No shared file's constant is left as a name, and what a command is called stays as it is."""
    text = script(verb, ALL).text
    before_the_verb = text[: text.rindex(f"-- {verb}:")]
    code = re.sub(r"--.*", "", before_the_verb)
    names = set(re.findall(r"(?<![\"\w])[A-Z][A-Z_]+(?![\"\w])", code))
    assert names <= {"KEYS", "ARGV"}
    assert 'redis.call("GET", KEYS[' in code
