"""A Flask app with three accounts, a spy on its password checks, and a clock if wanted."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask

from authguard import Passwords
from authguard.flask import AuthGuard
from authguard.flask.state import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from authguard.notify import Message

SECRET = "of the flask tests: 0123456789abcdef"
HOME = "203.0.113.9"

#: Set-up S of the cases from public bug reports.
POLICY = {
    "login": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "5/300s", "lockout": "900s"},
            {"name": "client", "by": ["client"], "sliding_log": "20/300s"},
        ]
    }
}


#: What the blueprints of the tests are made with.
MESSAGES: dict[str, Any] = {"channels": ("sms", "email"), "sms_countries": ("US",)}

#: Set-up S for everything that sends or checks what was sent.
ALL_OF_S: dict[str, Any] = {
    **POLICY,
    "password.forgot": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "3/1h"},
            {"name": "client", "by": ["client"], "sliding_log": "10/1h"},
        ]
    },
    "password.reset": {
        "limits": [{"name": "client", "by": ["client"], "sliding_log": "20/1h"}],
    },
    "otp": {
        "send": {
            "limits": [
                {"name": "cooldown", "by": ["account"], "cooldown": ["60s"]},
                {"name": "quota", "by": ["account"], "sliding_log": "5/24h"},
                {"name": "client", "by": ["client"], "sliding_log": "20/1h"},
            ]
        },
        "verify": {
            "limits": [
                {"name": "account", "by": ["account"], "sliding_log": "5/15m", "lockout": "15m"},
                {"name": "client", "by": ["client"], "sliding_log": "20/15m"},
            ]
        },
    },
}


@dataclass
class Person:
    """An account of the tests."""

    key: str
    username: str
    password_hash: str | None
    active: bool = True
    second_factor: bool = False
    phone: str | None = None
    session_stamp: str = "session-stamp-0"
    device_stamp: str = "device-stamp-0"
    recovery_required: set[str] = field(default_factory=set)

    @property
    def email(self) -> str:
        """Where mail goes."""
        return f"{self.username}@example.test"


class Outbox:
    """A notifier that keeps what it was given, and fails on demand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.messages: list[Message] = []
        self.tries = 0
        self.failure: Exception | None = None

    def send(self, message: Message) -> None:
        """Keep a message, or raise what the test has set."""
        with self._lock:
            self.tries += 1
            if self.failure is not None:
                raise self.failure
            self.messages.append(message)


class People:
    """Accounts by any of their names, in memory."""

    def __init__(self, passwords: Passwords) -> None:
        self._lock = threading.Lock()
        self.by_key = {
            "key-1": Person("key-1", "vera", passwords.hash("right vera"), phone="+14155550101"),
            "key-2": Person("key-2", "omar", passwords.hash("right omar"), phone="+14155550102"),
            "key-3": Person("key-3", "dora", passwords.hash("right dora"), active=False),
            "key-4": Person(
                "key-4",
                "tess",
                passwords.hash("right tess"),
                second_factor=True,
                phone="+14155550103",
            ),
            "key-5": Person("key-5", "nora", None),
        }
        self.asked: list[str] = []

    def find(self, identifier: str) -> Person | None:
        """Look a name up."""
        self.asked.append(identifier)
        wanted = identifier.strip().casefold()
        for person in self.by_key.values():
            if wanted in (person.username, f"{person.username}@example.test"):
                return person
        return None

    def get(self, key: str) -> Person | None:
        """Look a key up."""
        return self.by_key.get(key)

    def replace_password_hash(self, key: str, old: str, new: str) -> None:
        """Keep a new hash, unless the password was changed meanwhile."""
        with self._lock:
            if self.by_key[key].password_hash == old:
                self.by_key[key].password_hash = new

    def set_password(self, key: str, new: str) -> None:
        """Keep a new password, and end sessions and devices."""
        with self._lock:
            person = self.by_key[key]
            person.password_hash = new
            person.session_stamp += "'"
            person.device_stamp += "'"

    def forget_devices(self, key: str) -> None:
        """End the devices."""
        with self._lock:
            self.by_key[key].device_stamp += "'"

    def require_recovery(self, key: str, action: str) -> bool:
        """Keep that recovery is needed."""
        with self._lock:
            new = action not in self.by_key[key].recovery_required
            self.by_key[key].recovery_required.add(action)
            return new

    def lift_recovery(self, key: str, action: str) -> bool:
        """Open it again."""
        with self._lock:
            needed = action in self.by_key[key].recovery_required
            self.by_key[key].recovery_required.discard(action)
            return needed


class Spy:
    """Real password hashing at the lowest cost, with every check written down."""

    def __init__(self) -> None:
        self.real = Passwords.cheapest_for_tests(queue=500, wait_s=60)
        self.checks: list[bool] = []
        self.before: Callable[[], None] = lambda: None
        self.rehash = False

    def hash(self, password: str) -> str:
        """Hash, really."""
        return self.real.hash(password)

    def needs_rehash(self, stored: str) -> bool:
        """Answer as told."""
        return self.rehash or self.real.needs_rehash(stored)

    def verify(self, stored: str | None, password: str) -> bool:
        """Verify, really, and write it down."""
        self.before()
        right = self.real.verify(stored, password)
        self.checks.append(right)
        return right

    @property
    def wrong(self) -> int:
        """How many checks found the password wrong."""
        return self.checks.count(False)


class Site:
    """An app, its extension, and short ways to ask it."""

    home = HOME

    def __init__(self, app: Flask, auth: AuthGuard) -> None:
        self.app = app
        self.auth = auth
        self.state = state_of(app)
        assert self.state is not None
        self.spy = Spy()
        self.state.passwords = self.spy  # type: ignore[assignment]
        self.people = People(self.spy.real)
        self.outbox = Outbox()

    @property
    def guard(self) -> Any:
        """The guard of the app."""
        return self.state.guard

    def browser(self, client: str = HOME) -> FlaskClient:
        """Give a client that keeps its cookies."""
        browser = self.app.test_client()
        browser.environ_base["REMOTE_ADDR"] = client
        return browser

    def post(self, path: str = "/auth/login", *, client: str = HOME, **how: Any) -> TestResponse:
        """Send one request of a client without cookies."""
        return self.browser(client).post(path, **how)

    def login(
        self, who: str = "vera", password: str = "wrong", *, client: str = HOME, **how: Any
    ) -> TestResponse:
        """Try to sign in by JSON."""
        body = {"identifier": who, "password": password}
        return self.post(json=body, client=client, **how)

    def send_code(
        self, who: str = "vera", channel: str = "sms", *, client: str = HOME, **fields: Any
    ) -> TestResponse:
        """Ask for a code by JSON."""
        body = {"identifier": who, "channel": channel, **fields}
        return self.post("/auth/otp/send", json=body, client=client)

    def verify(self, challenge: str, code: str, *, client: str = HOME) -> TestResponse:
        """Answer a challenge by JSON."""
        return self.post(
            "/auth/otp/verify", json={"challenge": challenge, "code": code}, client=client
        )

    def messages(self, kind: str | None = None) -> list[Message]:
        """Give what went out so far, newest first, of one kind or all."""
        with self.app.app_context():
            assert self.auth.drain_messages(timeout_s=30)
        sent = reversed(self.outbox.messages)
        return [message for message in sent if kind in (None, message.kind)]

    def statuses(self, times: int, *args: Any, **how: Any) -> list[int]:
        """Try several times, one after another."""
        return [self.login(*args, **how).status_code for _ in range(times)]

    def used(self, limit: str = "account", *, key: str = "key-1", client: str = HOME) -> int:
        """Tell how many places of a limit are taken."""
        verdicts = self.guard.peek("login", account=key, client=client).verdicts
        verdict = next(verdict for verdict in verdicts if verdict.name == limit)
        return int(verdict.limit - verdict.remaining)


@pytest.fixture
def bare_app(valkey_url: str) -> Flask:
    """Give an app with settings, before the extension has seen it."""
    app = Flask(__name__)
    app.config.update(
        TESTING=True,
        SECRET_KEY="of the session",
        AUTHGUARD_STORE_URL=valkey_url,
        AUTHGUARD_SECRET=SECRET,
        AUTHGUARD_POLICY=POLICY,
        AUTHGUARD_DEADLINE_MS=10_000,
        AUTHGUARD_BASE_URL="http://app.example",
    )
    return app


@pytest.fixture
def site_factory(bare_app: Flask, client: valkey.Valkey) -> Iterator[Callable[..., Site]]:
    """
    Make sites; ``blueprint=False`` leaves the ready-made routes out.

    With ``messages`` (options of the blueprint, or none of them: {}) they can send.

    Afterwards every key that a test left must have an expiry (B108).
    """
    made: list[Site] = []

    def make(
        *,
        clock: Callable[[], int] | None = None,
        limits: list[dict[str, Any]] | None = None,
        blueprint: bool = True,
        messages: dict[str, Any] | None = None,
        **config: Any,
    ) -> Site:
        if limits is not None:
            config["AUTHGUARD_POLICY"] = {"login": {"limits": limits}}
        bare_app.config.update(config)
        site = Site(bare_app, AuthGuard(bare_app, clock=clock))
        made.append(site)
        options: dict[str, Any] = {}
        if messages is not None:
            options = {"notifier": site.outbox, **MESSAGES, **messages}
        if blueprint:
            bare_app.register_blueprint(
                site.auth.blueprint(accounts=site.people, **options), url_prefix="/auth"
            )
        return site

    yield make
    for site in made:
        site.messages()
        site.guard.close()
    assert [key for key in client.scan_iter() if client.pttl(key) == -1] == []


@pytest.fixture
def site(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site on set-up S, whose clock a test moves by hand."""
    return site_factory(clock=clock)


@pytest.fixture
def post_site(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site that sends codes and links, on set-up S, whose clock a test moves by hand."""
    return site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=ALL_OF_S)


@pytest.fixture
def default_site(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site that sends codes and links, on the default profile, with a clock by hand."""
    return site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=None)


@pytest.fixture
def volley() -> Callable[[int, Callable[[int], int]], list[int]]:
    """Give a way to call a function from many threads at the same moment."""

    def fire(threads: int, call: Callable[[int], int]) -> list[int]:
        barrier = threading.Barrier(threads)
        results: list[int] = [0] * threads

        def run(number: int) -> None:
            barrier.wait()
            results[number] = call(number)

        running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return results

    return fire
