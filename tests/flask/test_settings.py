"""Wrong settings stop the start, and say which setting and what to write instead."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask

from authguard.errors import ConfigurationError
from authguard.flask import AuthGuard
from authguard.flask.settings import Settings
from authguard.flask.state import state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flask.conftest import Site

GOOD = {
    "AUTHGUARD_STORE_URL": "valkey://127.0.0.1:6379/0",
    "AUTHGUARD_SECRET": "0123456789abcdef0123456789abcdef",
}

WRONG: list[tuple[str, str, Any]] = [
    ("AG010", "STORE_URL", None),
    ("AG010", "STORE_URL", ""),
    ("AG010", "STORE_URL", 6379),
    ("AG010", "STORE_URL", "valkey://127.0.0.1:6379/abc"),
    ("AG010", "STORE_URL", "http://127.0.0.1"),
    ("AG011", "SECRET", None),
    ("AG011", "SECRET", ""),
    ("AG011", "SECRET", "short"),
    ("AG011", "SECRET", b"31 bytes, one fewer than enough"),
    ("AG011", "SECRET", 12345678901234567890123456789012),
    ("AG011", "SECRET", "x" * 64),
    ("AG011", "SECRET", "please CHANGE-ME before you go to production"),
    ("AG012", "DEADLINE_MS", 0),
    ("AG012", "DEADLINE_MS", -5),
    ("AG012", "DEADLINE_MS", "100"),
    ("AG012", "DEADLINE_MS", True),
    ("AG012", "DEADLINE_MS", 60_001),
    ("AG012", "HASH_SLOTS", 0),
    ("AG012", "HASH_SLOTS", 1.5),
    ("AG012", "REMEMBER_REFUSALS_MS", -1),
    ("AG012", "REMEMBER_REFUSALS_MS", 1_001),
    ("AG012", "REMEMBER_REFUSALS_MS", "1000"),
    ("AG012", "REMEMBER_REFUSALS_MS", True),
    ("AG014", "SECRETS", "0123456789abcdef0123456789abcdef"),
    ("AG014", "DEADLINE", 100),
    ("AG015", "POLICY", 7),
    ("AG016", "LOGIN_REDIRECT", ""),
    ("AG016", "LOGIN_REDIRECT", "//evil.test/"),
    ("AG016", "LOGIN_REDIRECT", "/\\evil.test/"),
    ("AG016", "LOGIN_REDIRECT", "https://evil.test/"),
    ("AG016", "LOGIN_REDIRECT", 5),
    ("AG017", "TRUSTED_PROXIES", "10.0.0.1/32"),
    ("AG017", "TRUSTED_PROXIES", ["10.0.0.1/33"]),
    ("AG017", "TRUSTED_PROXIES", ["10.0.0.1/8"]),
    ("AG017", "TRUSTED_PROXIES", ["proxy.test"]),
    ("AG017", "TRUSTED_PROXIES", [1]),
    ("AG011", "SECRET", []),
    ("AG011", "SECRET", [None]),
    ("AG017", "TRUSTED_PROXIES", ["::ffff:10.0.0.0/104"]),
    ("AG017", "ALLOWLIST", "10.0.0.0/8"),
    ("AG017", "DENYLIST", ["unix:"]),
    ("AG018", "ALLOWLIST", ["0.0.0.0/0"]),
    ("AG018", "DENYLIST", ["::/0"]),
    ("AG018", "TRUSTED_PROXIES", ["*"]),
    ("AG018", "TRUSTED_PROXIES", ["10.0.0.1/32", "0.0.0.0/0"]),
    ("AG018", "TRUSTED_PROXIES", ["::/0"]),
    ("AG025", "PREFIXES", [32, 64]),
    ("AG025", "PREFIXES", {"clients": (32, 64)}),
    ("AG025", "PREFIXES", {"client": (16, 48), "network": (24, 48)}),
    ("AG025", "PREFIXES", {"network": (24, 96)}),
    ("AG027", "FORWARDED_HEADER", "X_Forwarded_For"),
    ("AG027", "FORWARDED_HEADER", "X-Forwarded-For, Forwarded"),
    ("AG027", "FORWARDED_HEADER", ["X-Forwarded-For"]),
    ("AG027", "FORWARDED_HEADER", ""),
]


@pytest.mark.parametrize(("code", "key", "value"), WRONG)
def test_wrong_setting(code: str, key: str, value: object) -> None:
    """B138: each wrong value is refused at the start with its code, its key and a mend."""
    app = Flask(__name__)
    app.config.update(GOOD | {f"AUTHGUARD_{key}": value})
    with pytest.raises(ConfigurationError) as caught:
        AuthGuard(app)
    assert caught.value.code == code
    assert caught.value.where.partition("[")[0] == f"AUTHGUARD_{key}"
    assert caught.value.mend
    assert state_of(app) is None


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("DEADLINE_MS", 60_001, "60001 is out of range; take a whole number of milliseconds, 1 to"),
        ("DEADLINE_MS", "100", "is text, no number; take a whole number of milliseconds, 1 "),
        ("REMEMBER_REFUSALS_MS", "1000", "0 (off) to 1000: write int(…) around it"),
        ("REMEMBER_REFUSALS_MS", float("nan"), "nan is no whole number"),
        ("HASH_SLOTS", 0, "0 is out of range; take a whole number of hashes at a time, 1 or more"),
    ],
)
def test_a_wrong_number_is_told_with_its_range(key: str, value: object, words: str) -> None:
    """AG012 tells text from what is out of range, and names the setting and both ends."""
    with pytest.raises(ConfigurationError) as caught:
        Settings.read(GOOD | {f"AUTHGUARD_{key}": value})
    assert str(caught.value).startswith(f"AG012 AUTHGUARD_{key}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [0, 129, "x", -1, True, 56.0, None])
@pytest.mark.parametrize(("part", "at"), [("client", 1), ("network", 0)])
def test_wrong_prefix(part: str, at: int, value: object) -> None:
    """B036: what is no length of a prefix is refused at the start, and where it stands is told."""
    pair: list[object] = [8, 8]
    pair[at] = value
    with pytest.raises(ConfigurationError) as caught:
        Settings.read(GOOD | {"AUTHGUARD_PREFIXES": {part: pair}})
    assert caught.value.code == "AG025"
    assert caught.value.where == f"AUTHGUARD_PREFIXES['{part}'][{at}]"


def test_secret_is_never_shown() -> None:
    """The error about a secret doesn't hold the secret."""
    with pytest.raises(ConfigurationError) as caught:
        Settings.read(GOOD | {"AUTHGUARD_SECRET": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", GOOD)
def test_missing_setting(key: str) -> None:
    """Without a store or a secret there is no start."""
    with pytest.raises(ConfigurationError, match=key):
        Settings.read({name: value for name, value in GOOD.items() if name != key})


def test_defaults_and_values() -> None:
    """What is not set has its documented default; what is set is read as its own type."""
    plain = Settings.read(GOOD | {"SECRET_KEY": "not ours", "AUTHGUARD_POLICY": None})
    assert (plain.deadline_ms, plain.trusted_proxies, plain.hash_slots) == (100, (), None)
    assert plain.remember_refusals_ms == 1_000
    full = Settings.read(
        GOOD
        | {
            "AUTHGUARD_TRUSTED_PROXIES": [" 10.0.0.0/30", "2001:db8::1"],
            "AUTHGUARD_HASH_SLOTS": 2,
            "AUTHGUARD_REMEMBER_REFUSALS_MS": 0,
            "AUTHGUARD_LOGIN_REDIRECT": "home.index",
        }
    )
    proxies = full.proxies()
    assert proxies.networks.networks == (ip_network("10.0.0.0/30"), ip_network("2001:db8::1/128"))
    assert (proxies.unix, proxies.header) == (False, "X-Forwarded-For")
    assert (full.hash_slots, full.login_redirect) == (2, "home.index")
    assert full.remember_refusals_ms == 0


def test_settings_are_read_once(site: Site) -> None:
    """A change of app.config after the start changes nothing."""
    site.app.config["AUTHGUARD_TRUSTED_PROXIES"] = [site.home]
    answer = site.login(headers={"X-Forwarded-For": "198.51.100.7"})
    assert answer.status_code == 401
    assert site.used("client", client=site.home) == 1


@pytest.mark.parametrize("hold_ms", [None, 1_000, 0])
def test_refusals_are_remembered_as_set(
    site_factory: Callable[..., Site], monkeypatch: pytest.MonkeyPatch, hold_ms: int | None
) -> None:
    """A refusal is repeated without asking the store, unless the setting is 0; it says the same."""
    site = site_factory(AUTHGUARD_REMEMBER_REFUSALS_MS=hold_ms)
    site.statuses(5)
    first = site.login()
    asked, run = 0, site.guard.store.run

    def counted(call: Any) -> Any:
        nonlocal asked
        asked += 1
        return run(call)

    monkeypatch.setattr(site.guard.store, "run", counted)
    again = [site.login() for _ in range(20)]
    assert {answer.status_code for answer in (first, *again)} == {429}
    assert asked == 20 if hold_ms == 0 else asked < 20
    waits = [int(answer.headers["Retry-After"]) for answer in (first, *again)]
    assert waits == sorted(waits, reverse=True)


def test_policy_file_is_checked(bare_app: Flask, tmp_path: Any) -> None:
    """A wrong policy file stops the start as a wrong setting does."""
    path = tmp_path / "policy.toml"
    path.write_text('[login]\nlimits = [{ name = "a", by = ["account"], sliding_log = "5 a day" }]')
    bare_app.config["AUTHGUARD_POLICY"] = str(path)
    with pytest.raises(ConfigurationError, match="sliding_log"):
        AuthGuard(bare_app)


def test_unknown_action(site_factory: Callable[..., Site], bare_app: Flask) -> None:
    """B136: protecting by an action without a policy fails at the decoration, or at init_app."""
    site = site_factory()
    with pytest.raises(ConfigurationError, match="logn"):
        site.auth.protect("logn", account="username")
    early = AuthGuard()
    early.protect("logn", account="username")
    with pytest.raises(ConfigurationError, match="logn"):
        early.init_app(bare_app)


def test_blueprint_before_init_app() -> None:
    """A blueprint on an app without the extension stops the start."""
    app = Flask(__name__)
    with pytest.raises(ConfigurationError, match="AG019"):
        app.register_blueprint(AuthGuard().blueprint(accounts=None))  # type: ignore[arg-type]


def test_two_sets_of_accounts(site: Site) -> None:
    """Two sets of accounts in one app, whose keys could meet, stop the start."""
    other = site.auth.blueprint(accounts=object())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="AG020"):
        site.app.register_blueprint(other, name="other")


def test_no_session_key(site_factory: Callable[..., Site]) -> None:
    """Without SECRET_KEY no session could start, so the blueprint says so at the start."""
    with pytest.raises(ConfigurationError, match="AG021 SECRET_KEY"):
        site_factory(SECRET_KEY=None)


def test_several_apps(site_factory: Callable[..., Site], bare_app: Flask) -> None:
    """One extension object serves several apps, each with its own settings and counts."""
    site = site_factory()
    second = Flask(__name__)
    second.config.update(bare_app.config)
    second.config["AUTHGUARD_SECRET"] = "another secret: fedcba9876543210"
    site.auth.init_app(second)
    state = state_of(second)
    assert state is not None
    try:
        site.statuses(5)
        assert state.guard.peek("login", account="key-1", client=site.home).remaining == 5
        assert site.login().status_code == 429
        with second.app_context():
            assert site.auth.guard is state.guard
            assert site.auth.passwords is state.passwords
        with site.app.app_context():
            assert site.auth.guard is site.guard
    finally:
        state.guard.close()


def test_extension_keeps_no_app(site: Site) -> None:
    """The extension object holds no app, as Flask's guide for extensions asks."""
    assert not any(isinstance(value, Flask) for value in vars(site.auth).values())


def test_a_redirect_to_nowhere_stops_the_first_request(
    site_factory: Callable[..., Site],
) -> None:
    """AG016: an endpoint that does not exist is found before anyone signs in, not after."""
    site = site_factory(AUTHGUARD_LOGIN_REDIRECT="nowhere")
    with pytest.raises(ConfigurationError, match=r"AG016 AUTHGUARD_LOGIN_REDIRECT: .*'nowhere'"):
        site.browser().get("/auth/login")


@pytest.mark.parametrize("accounts", [{}, None, object()])
def test_accounts_that_are_none_stop_the_start(bare_app: Flask, accounts: Any) -> None:
    """AG024: an object that can't find accounts is refused when the blueprint is registered."""
    guard = AuthGuard(bare_app)
    with pytest.raises(ConfigurationError, match=r"AG024 .* no method find"):
        bare_app.register_blueprint(guard.blueprint(accounts=accounts))
