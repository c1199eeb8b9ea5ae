"""The installed package, used as a stranger would: nothing here reads the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import authguard
from authguard import Denied, Guard
from authguard.testing import embedded_valkey

SECRET = "a secret of the tests, 32 bytes or more"


def test_a_guess_too_many_is_refused() -> None:
    """Five guesses pass and the sixth is refused, by the Lua that came with the package."""
    with embedded_valkey() as server, Guard(server.url, secret=SECRET, deadline_ms=5_000) as guard:
        for _ in range(5):
            guard.attempt("login", account="vera", client="203.0.113.9")
        with pytest.raises(Denied) as denied:
            guard.attempt("login", account="vera", client="203.0.113.9")
    assert denied.value.decision.refused_by == ("pair",)


#: What is loaded only by those who use it.
HEAVY = (
    *("valkey", "click", "rich", "argon2", "phonenumbers", "email_validator", "idna"),
    *("asyncio", "smtplib", "http.client", "tomllib", "itsdangerous", "http_sf"),
    *("authguard.guard_async", "authguard.load", "authguard.passwords", "authguard.flask"),
)


def loaded(code: str) -> set[str]:
    """Run lines in a process of its own, and give what it has loaded."""
    told = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.split())


def test_the_front_door_stays_light() -> None:
    """`import authguard` brings in neither Flask nor a client library nor what few ask for."""
    assert loaded("import authguard").isdisjoint({"flask", *HEAVY})


def test_the_flask_room_stays_light() -> None:
    """Beyond Flask's own, `import authguard.flask` brings in no hashing, mail or ready routes."""
    beyond = loaded("import authguard.flask") - loaded("import flask")
    assert beyond.isdisjoint(
        {*HEAVY, "authguard.flask.blueprint", "authguard.smtp", "authguard.ops.check"}
        - {"authguard.flask", "http_sf"}  # which writes the fields of every refusal
    )


def test_no_request_waits_for_an_import() -> None:
    """What attempts and refusals need is loaded when the app's extension is made, not by them."""
    with embedded_valkey() as server:
        new = loaded(
            f"""
import flask, werkzeug.test
from authguard.flask import AuthGuard
app = flask.Flask("app")
app.config.update(
    AUTHGUARD_SECRET={SECRET!r}, AUTHGUARD_STORE_URL={server.url!r}, AUTHGUARD_DEADLINE_MS=5_000
)
guard = AuthGuard(app, check_at_start=False)
app.post("/")(guard.protect("login", account="name")(lambda: "wrong"))
browser, before = app.test_client(), set(sys.modules)
browser.get("/")
answers = [browser.post("/", data=dict(name="vera")).status_code for _ in range(6)]
assert answers == [200] * 5 + [429], answers
for name in before:
    del sys.modules[name]"""
        )
    assert not {name.partition(".")[0] for name in new} & {"authguard", *HEAVY}


def test_every_name_of_the_front_door_is_there() -> None:
    """Names that are loaded late are imported, listed and starred as the others, and no more."""
    names = set(authguard.__all__)
    assert names <= set(dir(authguard))
    assert all(getattr(authguard, name) is not None for name in names)
    told = "from authguard import *; assert set(authguard.__all__) <= set(dir())"
    assert "authguard.load" in loaded(f"import authguard; {told}")
    with pytest.raises(AttributeError, match="no attribute 'Gaurd'"):
        authguard.Gaurd  # type: ignore[attr-defined]  # noqa: B018 - the look itself is the test
    with pytest.raises(ImportError, match="Gaurd"):
        from authguard import Gaurd  # type: ignore[attr-defined]  # noqa: F401


def test_the_version_is_told_once() -> None:
    """The package's own version is the one it was installed under."""
    assert metadata.version("authguard") == authguard.__version__


@pytest.mark.skipif("AUTHGUARD_WHEEL_ONLY" not in os.environ, reason="for the built wheel")
def test_the_wheel_holds_the_lua_the_types_and_the_pages() -> None:
    """The wheel ships its Lua inside the package, its type marker, templates and static files."""
    package = Path(authguard.__file__).parent
    assert "site-packages" in str(package)
    assert {path.name for path in (package / "_lua").glob("*.lua")} >= {
        "acquire.lua",
        "settle.lua",
        "peek.lua",
        "clear.lua",
        "sliding_log.lua",
        "lock.lua",
        "open_limits.lua",
    }
    assert (package / "py.typed").is_file()
    assert list((package / "flask" / "templates").rglob("*.html"))
    assert list((package / "flask" / "static").rglob("*.css"))


@pytest.mark.skipif("AUTHGUARD_WHEEL_ONLY" not in os.environ, reason="for the built wheel")
def test_the_command_is_there() -> None:
    """`authguard --version` answers from the wheel."""
    command = Path(sys.executable).parent / "authguard"
    told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert authguard.__version__ in told.stdout
