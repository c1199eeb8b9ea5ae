"""Pseudonyms: nothing raw, nothing that meets, nothing without a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authguard import ConfigurationError
from authguard.identity import Pseudonyms


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_no_two_values_meet_in_one_pseudonym(one: tuple[str, str], other: tuple[str, str]) -> None:
    """A30: fields are length-prefixed, so different part and value never make one pseudonym."""
    pseudonyms = Pseudonyms("a secret of the tests, 32 bytes or more")

    def of(pair: tuple[str, str]) -> bytes | None:
        try:
            return pseudonyms.of(*pair)
        except UnicodeEncodeError:
            return None  # lone surrogates never get past normalise_account

    assert (of(one) == of(other)) is (one == other) or None in (of(one), of(other))


@pytest.mark.parametrize(
    "secret", ["", "short", "x" * 64, "ab" * 32, "changeme-changeme-0123456789abcdef", b"", None, 5]
)
def test_a_weak_secret_stops_the_start(secret: object) -> None:
    """A missing, short or one-character secret is a configuration error that names the mend."""
    with pytest.raises(ConfigurationError, match=r"AG011 secret: .*secrets\.token_urlsafe"):
        Pseudonyms(secret)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("${AUTHGUARD_SECRET:?must be set in the environment}", '"${" is in it'),
        ("<your secret here, 32 bytes or more>", '"<your" is in it'),
        ("your-256-bit-secret-0123456789abcdef", '"your-256-bit" is in it'),
        ("Changeit, and then changeit once more", '"changeit" is in it'),
        ("ab" * 32, "it has fewer than 8 different bytes"),
    ],
)
def test_a_template_is_no_secret(secret: str, why: str) -> None:
    """What examples and unfilled templates hold is nobody's secret, and the error says why."""
    with pytest.raises(ConfigurationError) as caught:
        Pseudonyms(secret)
    assert str(caught.value).startswith(f"AG011 secret: is a placeholder, not a secret: {why};")
    assert secret not in str(caught.value)


def test_random_bytes_are_never_taken_for_a_template() -> None:
    """One in 2,000 of 32 random bytes holds a "${" by chance, and is a secret all the same."""
    Pseudonyms(b"\x9c\xf3${" + bytes(range(160, 192)))


def test_raw_bytes_of_the_environment_are_the_secret() -> None:
    """Bytes that are no UTF-8 come from the environment as surrogates, and count byte for byte."""
    one = bytes(range(128, 160)) + b"and more"
    other = bytes(range(160, 192)) + b"and more"
    pseudonyms = [Pseudonyms(raw.decode(errors="surrogateescape")) for raw in (one, other)]
    assert pseudonyms[0].of("account", "vera") == Pseudonyms(one).of("account", "vera")
    assert pseudonyms[0].of("account", "vera") != pseudonyms[1].of("account", "vera")
    with pytest.raises(ConfigurationError, match="AG011"):
        Pseudonyms("\ud800" * 16 + "a secret of the tests, 32 bytes or more")


def test_a_secret_never_shows() -> None:
    """The secret is in no repr."""
    assert "tests" not in repr(Pseudonyms("a secret of the tests, 32 bytes or more"))
