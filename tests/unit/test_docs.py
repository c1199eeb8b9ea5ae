"""The documents say what the code does."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask, g, request

from authguard import Denied, Passwords, default_policies, load_policies
from authguard.flask import AuthGuard
from authguard.flask.settings import Settings
from authguard.policy_file import _read
from authguard.stores._address import read_address
from authguard.stores.valkey import ValkeyStore
from authguard.stores.valkey_async import AsyncValkeyStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_error_code_is_documented_and_none_is_invented() -> None:
    """The codes raised in the code are those of docs/errors.md, no more and no less."""
    raised: set[str] = set()
    for path in (ROOT / "authguard").rglob("*.py"):
        raised |= set(re.findall(r'"(AG0\d\d)\b', path.read_text(encoding="utf-8")))
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| (AG\d+) ", text, re.MULTILINE)
    assert sorted(raised) == sorted(documented)


def test_every_setting_is_documented_with_its_default() -> None:
    """B147: docs/settings.md lists each AUTHGUARD_ key with unit and default, as in the code."""
    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(AUTHGUARD_\w+)` \|[^|]*\| ([^|]+?) \|", text, re.MULTILINE))
    expected: dict[str, Any] = {
        f"AUTHGUARD_{field.name.upper()}": (
            "none, required" if field.default is MISSING else f"`{field.default}`"
        )
        for field in fields(Settings)
    }
    assert rows == expected


def test_the_default_profile_is_shown_as_it_is() -> None:
    """The policies in README and docs/settings.md are those of the default profile."""
    short, login, api = blocks("toml")
    assert list(load_policies(tomllib.loads(api))["api"].by_name) == [
        "burst",
        "month",
        "client",
        "all",
    ]
    assert load_policies(tomllib.loads(login)) == default_policies()
    assert list(tomllib.loads(short)) == list(tomllib.loads(login)) == ["login"]
    (whole,) = blocks("toml", (ROOT / "docs/settings.md").read_text(encoding="utf-8"))
    assert _read(tomllib.loads(whole)) == default_policies()


def test_the_flask_example_protects(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """README's 15 lines, run as printed: five wrong passwords are tried, the sixth is refused."""
    monkeypatch.setenv("AUTHGUARD_STORE_URL", valkey_url)
    monkeypatch.setenv("AUTHGUARD_SECRET", "a secret of the tests, 32 bytes or more")
    example = next(code for code in blocks("python") if "@guard.protect" in code)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    tried: list[str] = []

    def check_password(name: str, password: str) -> bool:
        tried.append(name)
        return password == "right"

    scope: dict[str, Any] = {"check_password": check_password, "__name__": "example"}
    patient = example.replace("guard = ", 'app.config["AUTHGUARD_DEADLINE_MS"] = 10_000\nguard = ')
    exec(compile(patient, "README.md", "exec"), scope)
    client = scope["app"].test_client()

    def post(password: str) -> int:
        form = {"username": "vera", "password": password}
        return client.post("/login", data=form).status_code

    assert post("right") == 200
    assert [post("wrong") for _ in range(6)] == [401] * 5 + [429]
    assert len(tried) == 6
    with scope["app"].app_context():
        scope["guard"].guard.close()


def test_the_plain_example_protects(valkey_url: str) -> None:
    """README's plain example, run as printed against a real store."""
    example = next(code for code in blocks("python") if "guard.attempt" in code)
    example = example.replace("valkey://127.0.0.1:6379/0", valkey_url)
    example = example.replace("secret=SECRET", "secret=SECRET, deadline_ms=10_000")
    from authguard import Passwords

    scope: dict[str, Any] = {
        "SECRET": "a secret of the tests, 32 bytes or more",
        "stored_hash": Passwords().hash("right"),
        "password": "right",
    }
    exec(compile(example, "README.md", "exec"), scope)
    assert scope["attempt"].succeeded
    scope["guard"].close()


def test_the_api_example_limits(valkey_url: str) -> None:
    """README's API view, policy and operator's words, run as printed: burst, override, load."""
    policy = tomllib.loads(blocks("toml")[2])
    app = a_flask_app(valkey_url)
    app.config["AUTHGUARD_POLICY"] = policy
    guard = AuthGuard(app, clock=lambda: 1_800_000_000_000, tier={"acme-pro": "pro"}.get)
    example = next(code for code in blocks("python") if "@guard.limit(" in code)
    scope: dict[str, Any] = {"app": app, "guard": guard, "g": g, "build_report": lambda: "ok"}
    exec(compile(example, "README.md", "exec"), scope)

    @app.before_request
    def key() -> None:
        g.api_key = request.headers["X-Api-Key"]

    def answers(key: str, times: int) -> list[int]:
        client, headers = app.test_client(), {"X-Api-Key": key}
        return [client.get("/api/report", headers=headers).status_code for _ in range(times)]

    assert answers("acme", 41) == [200] * 40 + [429]
    with app.app_context():
        (command,) = re.findall(r'override api month --account acme --to "(\S+)" --for 30d', README)
        guard.guard.override("api", "month", account="acme", to=command, for_ms=30 * 86_400_000)
        usage = {each.name: each for each in guard.guard.usage("api", account="acme")}
        assert usage["month"].limit == 500_000
        assert "guard.guard.load(0.2)" in README
        guard.guard.load(0.2)
    # 40 of the second's 500 are used, and a fifth of those is to be had: 60 more.
    assert answers("omar", 40) + answers("vera", 21) == [200] * 60 + [503]
    with app.app_context():
        guard.guard.close()


def test_the_limiter_example_counts(guard_factory: Callable[..., Guard]) -> None:
    """README's token bucket, run as printed: two of its 20 tokens are taken."""
    example = next(code for code in blocks("python") if "guard.limiter(" in code)
    scope: dict[str, Any] = {"guard": guard_factory()}
    exec(compile(example, "README.md", "exec"), scope)
    assert (scope["decision"].allowed, scope["decision"].remaining) == (True, 18)


def test_the_settings_of_who_is_asking_work_as_printed(valkey_url: str) -> None:
    """README's lines on who is asking, run as printed: header, lists, prefix and resolve count."""
    example = next(code for code in blocks("python") if "FORWARDED_HEADER" in code)
    app = a_flask_app(valkey_url)
    names = {"vera": "key-1", "vera@example.test": "key-1"}
    scope: dict[str, Any] = {"app": app, "AuthGuard": AuthGuard, "account_key_of": names.get}
    exec(compile(example, "README.md", "exec"), scope)
    app.post("/login")(scope["guard"].protect("login", account="name")(lambda: ""))

    def post(name: str, forwarded: str) -> int:
        return (
            app.test_client()
            .post(
                "/login",
                data={"name": name},
                headers={"X-Forwarded-For": f"192.0.2.1, {forwarded}"},
                environ_base={"REMOTE_ADDR": "10.0.0.1"},
            )
            .status_code
        )

    assert post("omar", "203.0.113.9") == 403
    one_client = [post(f"user-{n % 10}", f"2001:db8:0:1{n:02x}::1") for n in range(31)]
    assert one_client == [200] * 30 + [429]
    assert [post(f"user-{n}", "198.51.100.7") for n in range(40)] == [200] * 40
    assert [post(name, "192.0.2.9") for name in list(names) * 3] == [200] * 5 + [429]
    with app.app_context():
        scope["guard"].guard.close()


def test_the_page_on_identity_works_as_printed(valkey_url: str) -> None:
    """docs/identity.md, run block by block: every name is there, and does what is said of it."""
    page = (ROOT / "docs/identity.md").read_text(encoding="utf-8")
    app = a_flask_app(valkey_url)
    sent: list[str] = []
    scope: dict[str, Any] = {
        "app": app,
        "account_ids": {"vera": "key-1", "+14155550101": "key-1"},
        "send_the_invitation": lambda: sent.append("sent"),
        "new_secret": "a new secret of the tests, 32 bytes or more",
        "old_secret": app.config["AUTHGUARD_SECRET"],
    }
    rungs, sends = blocks("toml", page)
    app.config["AUTHGUARD_POLICY"] = tomllib.loads(rungs) | tomllib.loads(sends)
    prefixes, lists, resolve, change, send, rotation = blocks("python", page)
    for code in (prefixes, lists, rotation, resolve, change):
        exec(compile(code, "identity.md", "exec"), scope)
    app.view_functions["change_password"].__wrapped__.__code__ = (lambda: "").__code__
    browser = app.test_client()
    assert [browser.get("/password").status_code for _ in range(40)] == [200] * 40
    assert browser.post("/password").status_code == 400
    with browser.session_transaction() as opened:
        opened["user"] = "key-1"
    assert [browser.get("/password").status_code for _ in range(40)] == [200] * 40
    assert [browser.post("/password").status_code for _ in range(11)] == [200] * 10 + [429]
    with app.app_context():
        guard = scope["guard"].guard
    assert guard.account_key("415-555-0101") == guard.account_key("Vera") == "key-1"
    scope["guard"] = guard
    for _ in range(5):
        exec(compile(send, "identity.md", "exec"), scope)
    with pytest.raises(Denied):
        exec(compile(send, "identity.md", "exec"), scope)
    assert sent == ["sent"] * 5
    guard.close()


def a_flask_app(valkey_url: str) -> Flask:
    """Give an app with what README's first lines set."""
    app = Flask("example")
    app.config["AUTHGUARD_STORE_URL"] = valkey_url
    app.config["AUTHGUARD_SECRET"] = "a secret of the tests, 32 bytes or more"
    app.config["AUTHGUARD_DEADLINE_MS"] = 10_000
    app.config["SECRET_KEY"] = "of the session"
    return app


def blocks(language: str, page: str = README) -> list[str]:
    """Give a page's code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_async_example_protects(valkey_url: str) -> None:
    """README's AsyncGuard, run as printed: a right password is given back, a wrong one counts."""
    example = next(code for code in blocks("python") if "async with" in code)
    example = example.replace("valkey://127.0.0.1:6379/0", valkey_url)
    example = example.replace("secret=SECRET", "secret=SECRET, deadline_ms=10_000")
    code = compile(example, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    scope: dict[str, Any] = {
        "SECRET": "a secret of the tests, 32 bytes or more",
        "asyncio": asyncio,
        "passwords": Passwords(),
        "stored_hash": Passwords().hash("right"),
        "name": "vera",
        "address": "192.0.2.7",
    }

    async def run(password: str) -> bool:
        scope["password"] = password
        await eval(code, scope)  # the block, with its await at the top level
        await scope["guard"].close()
        return bool(scope["attempt"].settled)

    assert [asyncio.run(run(password)) for password in ("right", "wrong")] == [True, False]


def test_the_addresses_in_the_docs_are_addresses() -> None:
    """Each address that README and docs/store.md name in code is one, of the kind they say."""
    text = README + (ROOT / "docs/store.md").read_text(encoding="utf-8")
    urls = re.findall(r'"(valkeys?(?:\+\w+)?://[^"]+)"', text)
    kinds = {read_address(url).kind for url in urls}
    assert kinds == {"server", "sentinel", "cluster"}
    forms = re.findall(r"^\| `(valkey\S*)` \|", text, re.MULTILINE)
    assert len(forms) == 5
    for form in forms:
        plain = re.sub(r"\[([^]]*)\]", r"\1", form).replace("port", "1").replace("/db", "/0")
        if "…" not in plain:
            assert read_address(plain.replace("=N", "=1"))


def test_every_argument_of_a_store_is_told(tmp_path: Path) -> None:
    """The arguments that docs/store.md lists are all there are, with their defaults."""
    text = (ROOT / "docs/store.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+_?\w*`(?:, `\w+`)*) \| ([^|]+) \|", text, re.MULTILINE)
    told = {name: default for names, default in rows for name in re.findall(r"\w+", names)}
    for kind in (ValkeyStore, AsyncValkeyStore):
        arguments = inspect.signature(kind).parameters
        numbers = {
            name: str(each.default)
            for name, each in arguments.items()
            if isinstance(each.default, int)
        }
        assert set(arguments) - {"url"} <= told.keys()
        assert numbers.items() <= told.items()
