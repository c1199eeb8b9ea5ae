"""Passwords: one hash an answer, whatever the name; no hash for what can't be a password."""

from __future__ import annotations

import logging
import sys
import unicodedata

import pytest
from argon2 import PasswordHasher, Type, extract_parameters, low_level
from argon2.exceptions import HashingError, VerificationError, VerifyMismatchError
from hypothesis import given, settings
from hypothesis import strategies as st

from authguard.errors import ConfigurationError, HashingUnavailable, InvalidInput
from authguard.passwords import MAX_PASSWORD_BYTES, Passwords

RIGHT = "correct horse vera"
CHEAP = Passwords.cheapest_for_tests()


class Argon2Log:
    """The real argon2 behind argon2-cffi, with the hashes it computed written down."""

    def __init__(self) -> None:
        self.verified: list[str] = []
        self.hashed = 0
        self.fault: BaseException | None = None

    def hash_secret(self, **arguments: object) -> bytes:
        """Compute a hash and count it, or raise the fault that was set."""
        if self.fault is not None:
            raise self.fault
        encoded = low_level.hash_secret(**arguments)
        self.hashed += 1
        return encoded

    def verify_secret(self, encoded: bytes, secret: bytes, kind: Type) -> bool:
        """Verify and write down the hash if one was computed, or raise the fault that was set."""
        if self.fault is not None:
            raise self.fault
        try:
            low_level.verify_secret(encoded, secret, kind)
        except VerifyMismatchError:
            self.verified.append(encoded.decode())
            raise
        self.verified.append(encoded.decode())
        return True

    @property
    def computed(self) -> int:
        """All hashes that argon2 really computed."""
        return self.hashed + len(self.verified)


@pytest.fixture
def argon2_log(monkeypatch: pytest.MonkeyPatch) -> Argon2Log:
    """Count the hashes of every PasswordHasher at the door of argon2's own low level."""
    log = Argon2Log()
    monkeypatch.setattr(f"{PasswordHasher.__module__}.hash_secret", log.hash_secret)
    monkeypatch.setattr(f"{PasswordHasher.__module__}.verify_secret", log.verify_secret)
    return log


def _broken(encoded: str) -> dict[str, str]:
    """Stored values that can't be read, each by another of argon2's checks."""
    return {
        "empty": "",
        "unusable": "!",
        "another scheme": "$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW",
        "plain text": RIGHT,
        "head alone": "$argon2id",
        "cut short": encoded[:-6],  # a length that no Base64 has
        "cut in the salt": encoded[:35],
        "with a line end": encoded + "\n",
        "not ASCII": "é" + encoded,
        "no passes": encoded.replace("t=2", "t=0"),
        "no memory": encoded.replace("m=19456", "m=1"),
        "no lane": encoded.replace("p=1", "p=0"),
        "too many lanes": encoded.replace("p=1", "p=99999"),
        "no salt and no tag": "$argon2id$v=19$m=19456,t=2,p=1$$",
        "huge number": encoded.replace("m=19456", "m=99999999999"),
    }


def test_the_defaults_are_owasps_minimum() -> None:
    """Without settings a hash is argon2id, 19 MiB, t=2, p=1, 16-byte salt, 32-byte tag."""
    passwords = Passwords()
    for encoded in (passwords.hash(RIGHT), passwords._dummy):
        assert encoded.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
        parameters = extract_parameters(encoded)
        assert (parameters.salt_len, parameters.hash_len) == (16, 32)


def test_a_hash_verifies_its_own_password_alone() -> None:
    """The right password is True, any other False, and two hashes of one password differ."""
    passwords = Passwords()
    stored = passwords.hash(RIGHT)
    assert passwords.verify(stored, RIGHT) is True
    assert passwords.verify(stored, RIGHT + " ") is False
    assert passwords.verify(stored, RIGHT.upper()) is False
    assert passwords.hash(RIGHT) != stored


@pytest.mark.parametrize("setting", [{}, {"memory_kib": 12288, "time_cost": 3}])
def test_every_answer_costs_exactly_one_hash_of_the_current_parameters(
    argon2_log: Argon2Log, setting: dict[str, int]
) -> None:
    """Known, unknown and password-less names cost one hash each, with equal m, t and p (A53)."""
    passwords = Passwords(**setting)
    stored = passwords.hash(RIGHT)
    for asked, password, answer in (
        (stored, RIGHT, True),
        (stored, "wrong", False),
        (stored, "", False),
        (None, RIGHT, False),
        (None, "", False),
    ):
        argon2_log.verified.clear()
        assert passwords.verify(asked, password) is answer
        assert len(argon2_log.verified) == 1
        assert extract_parameters(argon2_log.verified[0]) == extract_parameters(stored)


def test_the_dummy_is_computed_once(argon2_log: Argon2Log) -> None:
    """The dummy is hashed at construction; unknown names later hash no new one."""
    passwords = Passwords.cheapest_for_tests()
    assert argon2_log.hashed == 1
    for _ in range(3):
        passwords.verify(None, RIGHT)
    assert argon2_log.hashed == 1
    assert set(argon2_log.verified) == {passwords._dummy}


@pytest.mark.parametrize("kind", _broken("x" * 99))
def test_an_unreadable_stored_hash_is_a_failure_like_any_other(
    argon2_log: Argon2Log, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A hash that can't be parsed costs one hash, is False, and is logged without it (B056)."""
    passwords = Passwords()
    stored = _broken(passwords.hash(RIGHT))[kind]
    argon2_log.verified.clear()
    with caplog.at_level(logging.DEBUG):
        assert passwords.verify(stored, RIGHT) is False
    assert argon2_log.verified == [passwords._dummy]
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("authguard", "ERROR")
    ]
    assert caplog.records[0].exc_info is None
    assert RIGHT not in caplog.text
    assert "$" not in caplog.text


def test_a_shortened_tag_is_never_right(argon2_log: Argon2Log) -> None:
    """A stored hash that a narrow column cut, still readable, costs one hash and is False."""
    stored = CHEAP.hash(RIGHT)
    for cut in (7, 23, 35):  # 27, 15 and 6 bytes are left of the tag
        argon2_log.verified.clear()
        assert CHEAP.verify(stored[:-cut], RIGHT) is False
        assert len(argon2_log.verified) == 1


def test_nothing_is_logged_for_ordinary_answers(caplog: pytest.LogCaptureFixture) -> None:
    """Right, wrong and unknown leave no line in the log to tell them apart by."""
    stored = CHEAP.hash(RIGHT)
    with caplog.at_level(logging.DEBUG):
        CHEAP.verify(stored, RIGHT)
        CHEAP.verify(stored, "wrong")
        CHEAP.verify(None, RIGHT)
    assert caplog.records == []


@pytest.mark.parametrize(
    "fault",
    [
        VerificationError("Threading failure"),
        VerificationError("Memory allocation error"),
        VerificationError("some error argon2 may learn to raise"),
        HashingError("Threading failure"),
        MemoryError(),
    ],
    ids=repr,
)
def test_a_failing_argon2_is_not_a_wrong_password(argon2_log: Argon2Log, fault: Exception) -> None:
    """Ten argon2 errors are ten HashingUnavailable, then the right password works (B056)."""
    passwords = Passwords.cheapest_for_tests(slots=1, queue=0)
    stored = passwords.hash(RIGHT)
    argon2_log.fault = fault
    for _ in range(10):
        with pytest.raises(HashingUnavailable, match=r"^argon2 failed$"):
            passwords.verify(stored, RIGHT)
        with pytest.raises(HashingUnavailable):
            passwords.verify(None, RIGHT)
        with pytest.raises(HashingUnavailable):
            passwords.hash(RIGHT)
    argon2_log.fault = None
    assert passwords.verify(stored, RIGHT) is True


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS binds on Linux alone")
def test_a_real_want_of_memory_is_not_a_wrong_password() -> None:
    """When the real argon2 gets no memory, the answer is HashingUnavailable, not False (B056)."""
    import resource

    gib = 2**30
    stored = CHEAP.hash(RIGHT).replace("m=8", f"m={32 * gib // 1024}")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (16 * gib, limits[1]))
    try:
        with pytest.raises(HashingUnavailable, match=r"^argon2 failed$") as caught:
            CHEAP.verify(stored, RIGHT)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert str(caught.value.__cause__) == "Memory allocation error"


def test_rehash_is_due_when_parameters_differ() -> None:
    """needs_rehash is True for other parameters or types, False for equal or unreadable ones."""
    current = Passwords()
    stored = current.hash(RIGHT)
    assert current.needs_rehash(stored) is False
    assert current.needs_rehash(CHEAP.hash(RIGHT)) is True
    assert current.needs_rehash(Passwords(time_cost=3).hash(RIGHT)) is True
    assert current.needs_rehash(PasswordHasher(2, 19456, 1, hash_len=16).hash(RIGHT)) is True
    assert current.needs_rehash(PasswordHasher(2, 19456, 1, type=Type.I).hash(RIGHT)) is True
    for unreadable in ("", "!", "$2b$12$R9h/cIPz0gi", "$argon2id", "é" + stored):
        assert current.needs_rehash(unreadable) is False


def test_hashes_of_other_parameters_and_types_still_verify() -> None:
    """Accounts from before a change of parameters, or of argon2i, can still sign in."""
    for old in (CHEAP.hash(RIGHT), PasswordHasher(2, 19456, 1, type=Type.I).hash(RIGHT)):
        assert Passwords().verify(old, RIGHT) is True
        assert Passwords().verify(old, "wrong") is False


def test_composed_and_decomposed_text_are_one_password() -> None:
    """A password typed on another keyboard, in NFD instead of NFC, is the same password."""
    composed, decomposed = "zażółć gęślą jaźń", unicodedata.normalize("NFD", "zażółć gęślą jaźń")
    assert composed != decomposed
    assert CHEAP.verify(CHEAP.hash(decomposed), composed) is True
    assert CHEAP.verify(CHEAP.hash(composed), decomposed) is True
    assert PasswordHasher().verify(CHEAP.hash(decomposed), composed.encode())
    assert CHEAP.verify(CHEAP.hash("ﬁne"), "fine") is False, "NFKC would make them one"


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80))
def test_any_unicode_text_is_a_password(password: str) -> None:
    """Any text but lone surrogates, NUL included, round-trips in all its equivalent forms."""
    stored = CHEAP.hash(password)
    assert CHEAP.verify(stored, unicodedata.normalize("NFD", password)) is True
    assert CHEAP.verify(stored, password + "\0") is False


@pytest.mark.parametrize("letter", ["a", "é", "語", "🐎"])
def test_the_whole_password_counts_up_to_1024_bytes(letter: str) -> None:
    """1,024 bytes of UTF-8 are taken and all compared; one character more is InvalidInput."""
    width = len(letter.encode())
    longest = letter * (MAX_PASSWORD_BYTES // width) + "x" * (MAX_PASSWORD_BYTES % width)
    assert len(longest.encode()) == MAX_PASSWORD_BYTES
    stored = CHEAP.hash(longest)
    assert CHEAP.verify(stored, longest) is True
    assert CHEAP.verify(stored, longest[:-1]) is False
    assert CHEAP.verify(stored, longest[:-1] + "y") is False
    for ask in (CHEAP.hash, lambda text: CHEAP.verify(stored, text)):
        with pytest.raises(InvalidInput, match="longer than 1024 bytes"):
            ask(longest + "x")


UNUSABLE = {
    "bytes": b"correct horse vera",
    "None": None,
    "number": 12345678,
    "list": ["correct horse vera"],
    "1,025 bytes": "a" * 1025,
    "1,026 bytes in 513 letters": "é" * 513,
    "1,026 characters, 684 bytes after NFC": "u\u0308\u0304" * 342,
    "600 bytes, 1,800 after NFC": "\U0001d160" * 150,
    "a megabyte": "a" * 1_000_000,
    "lone surrogate": "horse\ud83d",
    "surrogate pair in two": "\ud83d\udc0e",
}


@pytest.mark.parametrize("password", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_no_hash_is_computed_for_what_cannot_be_a_password(
    argon2_log: Argon2Log, password: str
) -> None:
    """InvalidInput comes before slot and hash, for known and unknown names alike (A98)."""
    passwords = Passwords.cheapest_for_tests(slots=1, queue=0)
    stored = passwords.hash(RIGHT)
    before = argon2_log.computed
    with passwords._slots:  # the only slot is taken: whoever asked for one would be told 503
        for ask in (
            passwords.hash,
            lambda text: passwords.verify(stored, text),
            lambda text: passwords.verify(None, text),
        ):
            with pytest.raises(InvalidInput) as caught:
                ask(password)
            assert caught.value.field == "password"
            assert caught.value.__context__ is None, "a chained error would hold the password"
    assert argon2_log.computed == before


def test_an_over_long_password_is_refused_before_it_is_normalised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Normalising, quadratic on combining marks, never sees more than 1,024 characters (A98)."""
    seen: list[int] = []
    real = unicodedata.normalize

    def normalize(form: str, text: str) -> str:
        seen.append(len(text))
        return real(form, text)

    monkeypatch.setattr("authguard._password_bytes.unicodedata.normalize", normalize)
    with pytest.raises(InvalidInput):
        CHEAP.verify(None, "a" + "\u0301\u0316" * 100_000)
    assert seen == []
    assert CHEAP.verify(None, "a\u0301") is False
    assert seen == [2]


def test_an_empty_password_is_never_right(argon2_log: Argon2Log) -> None:
    """An empty password costs a hash and is False even where its hash was stored; none is made."""
    stored = PasswordHasher(1, 8, 1).hash("")
    argon2_log.verified.clear()
    assert CHEAP.verify(stored, "") is False
    assert argon2_log.verified == [stored]
    with pytest.raises(InvalidInput, match="is empty"):
        CHEAP.hash("")


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ({"memory_kib": 7167, "time_cost": 9}, "AG030"),
        ({"memory_kib": 0}, "AG030"),
        ({"memory_kib": 19456.0}, "AG030"),
        ({"memory_kib": True}, "AG030"),
        ({"memory_kib": "19456"}, "AG030"),
        ({"time_cost": 1}, "AG031"),
        ({"time_cost": True}, "AG031"),
        ({"time_cost": 2.0}, "AG031"),
        ({"memory_kib": 47103, "time_cost": 1}, "AG031"),
        ({"memory_kib": 19455, "time_cost": 2}, "AG031"),
        ({"memory_kib": 12287, "time_cost": 3}, "AG031"),
        ({"memory_kib": 9215, "time_cost": 4}, "AG031"),
        ({"memory_kib": 7168, "time_cost": 4}, "AG031"),
        ({"parallelism": 0}, "AG032"),
        ({"parallelism": True}, "AG032"),
        ({"parallelism": 19456 // 8 + 1}, "AG032"),
        ({"slots": 0}, "AG033"),
        ({"slots": -1}, "AG033"),
        ({"slots": 2.0}, "AG033"),
        ({"slots": True}, "AG033"),
        ({"queue": -1}, "AG034"),
        ({"queue": 16.0}, "AG034"),
        ({"queue": False}, "AG034"),
        ({"wait_s": 0}, "AG035"),
        ({"wait_s": -0.5}, "AG035"),
        ({"wait_s": float("inf")}, "AG035"),
        ({"wait_s": float("nan")}, "AG035"),
        ({"wait_s": 1e300}, "AG035"),
        ({"wait_s": True}, "AG035"),
        ({"wait_s": "1"}, "AG035"),
        ({"memory_kib": 2**40}, "AG036"),
    ],
)
def test_unsafe_or_wrong_settings_stop_the_start(setting: dict[str, object], code: str) -> None:
    """A wrong setting raises ConfigurationError that names its code, itself and the mend."""
    with pytest.raises(ConfigurationError) as caught:
        Passwords(**setting)
    assert caught.value.code == code
    if code != "AG036":
        assert caught.value.where in {f"passwords.{name}" for name in setting}
    assert caught.value.mend


@pytest.mark.parametrize(
    ("memory_kib", "time_cost"), [(47104, 1), (19456, 2), (12288, 3), (9216, 4), (7168, 5)]
)
def test_every_row_of_owasps_list_is_allowed(memory_kib: int, time_cost: int) -> None:
    """Each of OWASP's equally strong parameter sets builds, hashes and verifies."""
    passwords = Passwords(memory_kib=memory_kib, time_cost=time_cost)
    assert passwords.verify(passwords.hash(RIGHT), RIGHT) is True


def test_cheap_hashes_need_a_name_that_says_so() -> None:
    """Only cheapest_for_tests goes below the minimum, and it checks its other settings too."""
    assert CHEAP.hash(RIGHT).startswith("$argon2id$v=19$m=8,t=1,p=1$")
    with pytest.raises(ConfigurationError, match=r"^AG033 "):
        Passwords.cheapest_for_tests(slots=0)
