"""
Any policy and any setting: what can be used, or an error that names code, place and mend.

Nearly right tables, as mappings and as TOML, with a value of the wrong kind here and there.
"""

from __future__ import annotations

import datetime as dt
import re
import reprlib
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from authguard import ConfigurationError, Policy, PolicyLimit, SlidingLog, load_policies
from authguard._core.keys import Shape
from authguard._core.plan import decode
from authguard.flask.settings import Settings
from authguard.policy import PARTS
from authguard.policy_file import PROFILES
from tests.fuzz.conftest import fuzzed, mostly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODE: Final = re.compile(r"AG0\d\d")
KEY: Final = re.compile(r"rl:v1:\{[A-Za-z0-9_-]{8}\}[A-Za-z0-9_-]{22}[!~+]?")

#: Stands in every drawn secret and password, and must stand in no message.
CANARY: Final = "0canary0"


class Shown(reprlib.Repr):
    """Shows the beginning of anything, also of what ``repr`` gives up on."""

    def repr_int(self, number: int, _level: int) -> str:
        """Show a number of any length."""
        return str(number) if abs(number) < 10**20 else f"{hex(number)[:20]}…"


class Given:
    """A drawn value, which hypothesis can show."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(f"Given({Shown().repr(self.value)})")


def nested(times: int, wrap: Callable[[Any], Any]) -> Any:
    """Put something into itself, over and over."""
    value = wrap(None)
    for _ in range(times):
        value = wrap(value)
    return value


huge = st.sampled_from([5_000, 400, 63]).map(lambda digits: 10**digits)
times = st.sampled_from([50, 3_000])
deep = st.one_of(
    times.map(lambda times: nested(times, lambda inner: [inner])),
    times.map(lambda times: nested(times, lambda inner: {"a": inner})),
)
own = Policy("login", (PolicyLimit("client", ("client",), SlidingLog("5/15m")),))
plain = st.one_of(
    *(st.none(), st.booleans(), st.integers(), huge, huge.map(lambda number: -number)),
    *(st.floats(), st.text(), st.binary()),
)
odd = st.one_of(
    plain,
    deep,
    st.just(own),
    st.dates(),
    st.just(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    st.lists(plain, max_size=3),
    st.dictionaries(plain, plain, max_size=2),
)


@st.composite
def spoilt(draw: st.DrawFn, tables: st.SearchStrategy[dict[Any, Any]]) -> dict[Any, Any]:
    """Draw a table and leave it, or set one of its keys to anything, drop one, or add one."""
    table = dict(draw(tables))
    own = st.sampled_from(sorted(table)) if table else st.nothing()
    how = draw(st.sampled_from(["leave", "set", "set", "drop", "add"]))
    if how == "add" or not table:
        return table | {draw(plain): draw(odd)}
    if how == "set":
        table[draw(own)] = draw(odd)
    elif how == "drop":
        del table[draw(own)]
    return table


periods = st.sampled_from(["1s", "15m", "24h", "3650d", "3651d", "0m", "9999999999999d", "\u0661m"])
counts = mostly(st.sampled_from([5, 100]), st.integers() | st.text(max_size=3))
by = st.lists(st.sampled_from(PARTS), min_size=1, max_size=3, unique=True)
named = {"name": st.sampled_from("abcdef"), "by": by}
logs = st.fixed_dictionaries({**named, "sliding_log": st.just("5/15m")})
others = [
    {"cooldown": st.sampled_from(["60s", ["30s", "60s"]])},
    {"fixed_window": st.just("9/1h"), "reserve": st.integers(0, 8)},
    {"conversion": st.just("1/5"), "lockout": st.just("1h"), "life": st.just("5m")},
    {"distinct": st.just("purpose"), "limit": st.just("20/1h"), "forgive": st.booleans()},
]
without_purpose = by.map(lambda parts: [part for part in parts if part != "purpose"] or ["client"])
channels = {"channel": st.sampled_from(["sms", "email"])}
right = mostly(
    logs,
    st.one_of(
        *(
            st.fixed_dictionaries({**named, **keys, "by": without_purpose}, optional=channels)
            for keys in others
        )
    ),
)
more = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["Pair", "a" * 33, "day\n"]),
        "by": st.lists(st.sampled_from(PARTS) | plain),
        "sliding_log": st.builds("{}/{}".format, counts, periods),
        "lockout": periods | st.lists(mostly(periods, odd), max_size=3),
        "forgive": st.booleans(),
        "count_refused": st.booleans(),
        "ipv4_prefix": st.integers(-1, 33),
        "ipv6_prefix": st.integers(-1, 129),
        "channel": st.sampled_from(["sms", "email", "fax"]),
        "recovery": st.booleans(),
        "worn": st.booleans(),
        "reserve": st.integers(-1, 10),
        "life": periods,
        "limit": st.builds("{}/{}".format, counts, periods),
        "cooldown": periods | st.lists(mostly(periods, odd), max_size=3),
        "distinct": st.sampled_from([*PARTS, "acount"]),
    },
)
daring = st.builds(dict.__or__, right, more)
limits = st.lists(st.one_of(right, daring, spoilt(daring), mostly(right, odd)), max_size=3)
outage = {"outage": st.sampled_from(["deny", "allow"])}
actions = st.fixed_dictionaries({"limits": limits}, optional=outage)
nests = st.dictionaries(st.sampled_from(["otp", "send", "a", ""]), spoilt(actions), max_size=2)
names = st.sampled_from(["login", "otp.send", "unlock", "a.b.c.d"])
odd_names = st.sampled_from(["", ".", "a.b.c.d.e", "Login", "limits", "login\n"])
mappings = st.one_of(
    *(st.dictionaries(names, each, min_size=1, max_size=2) for each in (actions, spoilt(actions))),
    st.dictionaries(odd_names | plain, actions | nests, min_size=1, max_size=2),
    st.dictionaries(names, odd | nests, min_size=1, max_size=2),
)


def reasons(error: ConfigurationError) -> str:
    """Give an error's message; it must have a code, a place and a mend."""
    assert CODE.fullmatch(error.code)
    assert error.where
    assert error.problem
    assert error.mend
    return str(error)


def loads(source: Any) -> dict[str, Policy] | None:
    """Load policies, whose limits can all count then; None if they are refused, with reasons."""
    try:
        policies = load_policies(source)
    except ConfigurationError as error:
        refusal = error
    else:
        for action, policy in policies.items():
            assert policy.action == action
            assert bound(policy) == {limit.name for limit in policy.limits}
        return policies
    reasons(refusal)
    return None


def bound(policy: Policy) -> set[str]:
    """Name the limits of a policy that count, with a known device or without one."""
    everything = {need for limit in policy.limits for need in limit.needs}
    counting = set()
    for known in (everything, everything - {"device"}):
        shape = Shape.of(policy, frozenset(known))
        keys = shape.bind(dict.fromkeys(known, bytes(32))).keys
        assert all(KEY.fullmatch(key) for key in keys)
        own = [key for key in keys if not key.endswith("~")]  # one pardon is all pairs'
        assert len(set(own)) == len(own)
        assert len(decode(shape.plan).specs) == len(shape.limits)
        counting.update(limit.name for limit in shape.limits)
    return counting


@fuzzed(quick=300, deep=5_000, source=mostly(mappings, odd).map(Given))
def test_any_mapping_gives_policies_or_reasons(source: Given) -> None:
    """Whatever stands for a policy, all its limits can count, or an error says what to mend."""
    loads(source.value)


good = st.dictionaries(
    names,
    st.lists(right, min_size=1, max_size=6, unique_by=lambda limit: limit["name"]).map(
        lambda limits: {"limits": limits}
    ),
)


@fuzzed(quick=60, deep=2_000, source=good)
def test_a_right_policy_is_taken(source: dict[str, Any]) -> None:
    """A table that is right is what its action gets, whatever stands beside it."""
    policies = loads(source)
    assert policies is not None
    for action, table in source.items():
        assert [limit.name for limit in policies[action].limits] == [
            limit["name"] for limit in table["limits"]
        ]


marks = st.sampled_from([*"\0\r\n\ufeff\u00e9'\"[]{}=#,", '"""', "\\uD800", "\\U00110000", "\\x"])
numbers = st.sampled_from(
    [
        *("9" * 5_000, "0x" + "f" * 5_000, "-0x" + "f" * 5_000, "0b1", "1_0", "1e999", "nan"),
        *("-inf", "true", "1979-05-27T07:32:00Z", "1979-02-30", "07:32:00"),
    ]
)
phrases = st.sampled_from(
    [
        *("[login]\n", "[a.b.c.d.e]\n", '\n"" = 5\n', "\nlogin.limits = 1\n", "[[login.limits]]\n"),
        *("ipv4_prefix = ", "lockout = ", "sliding_log = ", "by = ", "limits", "login", "5/15m"),
        *("[" * 700, "{a=" * 700, "a." * 3_000 + "a = 1\n"),
    ]
)
pieces = st.one_of(marks, numbers, phrases, st.text(max_size=4))


@st.composite
def toml(draw: st.DrawFn) -> bytes:
    """Write the default profile with pieces cut out, doubled, and put in; nearly always UTF-8."""
    text = PROFILES["default"]
    for _ in range(draw(st.integers(0, 4))):
        lines = st.sampled_from([match.end() for match in re.finditer("^", text, re.MULTILINE)])
        start, length = draw(st.integers(0, len(text)) | lines), draw(st.integers(0, 30))
        cut = text[start : start + length]
        put = draw(st.one_of(st.just(""), st.just(cut * 2), pieces))
        text = text[:start] + put + text[start + length :]
    encoding = draw(mostly(st.just("utf-8"), st.sampled_from(["utf-8-sig", "utf-16", "latin-1"])))
    return text.encode(encoding, "replace")


@fuzzed(quick=300, deep=5_000, text=toml())
def test_any_file_gives_policies_or_reasons(tmp_path: Path, text: bytes) -> None:
    """Whatever a policy file holds, all its limits can count, or an error says what to mend."""
    path = tmp_path / "policy.toml"
    path.write_bytes(text)
    loads(path)


@fuzzed(
    quick=150,
    deep=5_000,
    key=st.sampled_from(
        [
            *("ipv4_prefix", "lockout", "forgive", "sliding_log", "by", "name", "x", "''"),
            *("channel", "recovery", "worn", "cooldown", "distinct", "limit", "life", "reserve"),
        ]
    ),
    value=pieces,
)
def test_any_value_in_a_file_gives_policies_or_reasons(
    tmp_path: Path, key: str, value: str
) -> None:
    """Whatever a key of a limit is set to, its limit can count, or an error says what to mend."""
    path = tmp_path / "policy.toml"
    beside = {"name": '"a"', "by": '["client"]', "sliding_log": '"5/15m"'} | {key: value}
    limit = ", ".join(f"{name} = {text}" for name, text in beside.items())
    path.write_text(f"[login]\nlimits = [{{ {limit} }}]\n", encoding="utf-8", errors="replace")
    loads(path)


@fuzzed(quick=100, deep=3_000, name=st.text(st.characters(exclude_characters="/")))
def test_any_path_gives_reasons(tmp_path: Path, name: str) -> None:
    """Whatever a file's path is, a policy that is not there is an error that says what to mend."""
    assert loads(f"{tmp_path}/none/{name}") is None


nets = st.sampled_from(["10.0.0.0/8", "2001:db8::/48", "unix:", "*", "::/0", "1.2.3.4/33"])
networks = st.lists(mostly(nets, odd), max_size=3)
lengths = st.one_of(
    st.tuples(st.integers(-1, 33), mostly(st.integers(0, 129), odd)),
    mostly(st.lists(st.integers(1, 32), max_size=3), odd),
)
secret = st.one_of(
    st.sampled_from([f"{CANARY} 0123456789abcdefghijklmn", f"{CANARY}change-me" + "x" * 40]),
    st.text().map(lambda text: CANARY + text),
    st.binary().map(lambda raw: CANARY.encode() + raw),
)
secrets = mostly(
    st.just(f"{CANARY} 0123456789abcdefghijklmn"),
    st.one_of(
        secret,
        st.lists(st.one_of(secret, st.lists(secret, max_size=1)), max_size=2),
        st.dictionaries(secret, secret, max_size=2),
        st.sampled_from([None, 0, (), True]),
    ),
)
configs = st.tuples(
    st.fixed_dictionaries(
        {
            "STORE_URL": mostly(st.just(f"valkey://:{CANARY}@127.0.0.1:1/0"), secrets),
            "SECRET": secrets,
        },
        optional={
            "POLICY": mostly(st.sampled_from(["policy.toml", {}]), odd),
            "DEADLINE_MS": mostly(st.integers(1, 1_000), odd),
            "TRUSTED_PROXIES": mostly(networks, odd),
            "FORWARDED_HEADER": mostly(st.sampled_from(["Forwarded", "X-Real-IP", "X_A", ""]), odd),
            "ALLOWLIST": mostly(networks, odd),
            "DENYLIST": mostly(networks, odd),
            "PREFIXES": mostly(
                st.dictionaries(mostly(st.sampled_from(["client", "network"]), plain), lengths), odd
            ),
            "HASH_SLOTS": mostly(st.integers(0, 8), odd),
            "LOGIN_REDIRECT": mostly(st.sampled_from(["index", "/home", "//evil", "/\\x"]), odd),
        },
    ),
    mostly(st.just({}), st.dictionaries(st.text(), odd, max_size=2)),
).map(lambda two: {f"AUTHGUARD_{key}": value for each in two for key, value in each.items()})


@fuzzed(quick=400, deep=10_000, config=configs.map(Given))
def test_any_settings_are_read_or_give_reasons(config: Given) -> None:
    """Whatever the settings hold, they are read, or an error says what to mend and no secret."""
    try:
        Settings.read(config.value)
    except ConfigurationError as error:
        refusal = error
    else:
        return
    assert CANARY not in reasons(refusal)
