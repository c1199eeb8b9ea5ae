"""What people who set out to break the ready-made routes found, and what holds since."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, StoreUnavailable
from authguard._outgoing import Outgoing
from authguard.flask import signals
from authguard.identity import read_phone
from tests.flask.conftest import HOME, Person

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from authguard._core.calls import ScriptCall
    from authguard.notify import Message
    from tests.conftest import Clock
    from tests.flask.conftest import Site

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
#: Later than this no code can be entered: the conversion guard takes it for ignored.
LIFE = 10 * MINUTE
COOKIE = "authguard_device"
FAR = "198.51.100.7"
KEYS = {"vera": "key-1", "omar": "key-2", "tess": "key-4"}


class Mailless(Person):
    """Somebody who can be written to by text message alone."""

    email = None  # type: ignore[assignment]


@pytest.fixture
def stops() -> Iterator[list[str]]:
    """Note the limits that stop all sends somewhere."""
    stops: list[str] = []

    def listen(_app: object, *, limit: str, **_payload: Any) -> None:
        stops.append(limit)

    with signals.sends_stopped.connected_to(listen):
        yield stops


@contextmanager
def silent_at(site: Site, place: int) -> Iterator[None]:
    """Let the request's call to the store at this place fail before it is sent; other calls run."""
    store, places, here = site.guard._engine.store, count(), threading.get_ident()
    run = store.run

    def run_or_not(call: ScriptCall[Any]) -> Any:
        if threading.get_ident() == here and next(places) == place:
            raise StoreUnavailable("connection")
        return run(call)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "run", run_or_not)
        yield


def code_for(site: Site, who: str, browser: FlaskClient) -> TestResponse:
    """Sign in by the steps the account asks for, a code being the last."""
    if site.people.by_key[KEYS[who]].second_factor:
        body = {"identifier": who, "password": f"right {who}"}
        asked = browser.post("/auth/login", json=body)
    else:
        asked = browser.post("/auth/otp/send", json={"identifier": who, "channel": "sms"})
    assert asked.status_code in (200, 202)
    challenge, code = (asked.json or {})["challenge"], site.messages("code")[0].code
    body = {"challenge": challenge, "code": str(code)}
    return browser.post("/auth/otp/verify", json=body)


def device(site: Site, who: str, browser: FlaskClient) -> str:
    """Give the id that this browser's cookie holds for an account."""
    cookie, key, state = browser.get_cookie(COOKIE), KEYS[who], site.state
    assert cookie is not None
    assert state is not None
    stamp = site.people.by_key[key].device_stamp
    found = state.devices.read(cookie.value, account=key, stamp=stamp)
    assert found is not None
    return str(found)


def wear_out(site: Site, who: str, browser: FlaskClient, clock: Clock) -> None:
    """Fail fifty times with a browser's cookie, so that it counts for nothing."""
    cookie = browser.get_cookie(COOKIE)
    assert cookie is not None
    for number in range(50):
        other = site.browser(f"100.{64 + number}.1.1")
        other.set_cookie(COOKIE, cookie.value)
        body = {"identifier": who, "password": "wrong"}
        assert other.post("/auth/login", json=body).status_code == 401
        if number % 5 == 4:
            clock.advance(15 * MINUTE)


def test_one_browser_is_one_device_however_it_signs_in(default_site: Site, clock: Clock) -> None:
    """A59: by password, by code, by both: a browser has one id, so fifty failures, for ever."""
    site, browser = default_site, default_site.browser()
    seen: dict[str, set[str]] = {"vera": set(), "tess": set()}
    for _ in range(2):
        for who, ids in seen.items():
            assert code_for(site, who, browser).status_code == 200
            ids.add(device(site, who, browser))
        body = {"identifier": "vera", "password": "right vera"}
        assert browser.post("/auth/login", json=body).status_code == 200
        seen["vera"].add(device(site, "vera", browser))
        clock.advance(HOUR)
    assert {who: len(ids) for who, ids in seen.items()} == {"vera": 1, "tess": 1}
    assert seen["vera"].isdisjoint(seen["tess"])


@pytest.mark.parametrize("who", ["vera", "tess"])
def test_a_worn_device_that_signs_in_by_code_is_a_new_one(
    default_site: Site, clock: Clock, who: str
) -> None:
    """A59: what has seen fifty failures is not kept: the owner's browser gets another id."""
    site, browser = default_site, default_site.browser()
    assert code_for(site, who, browser).status_code == 200
    worn = device(site, who, browser)
    wear_out(site, who, browser, clock)
    clock.advance(DAY)
    assert code_for(site, who, browser).status_code == 200
    fresh = device(site, who, browser)
    assert fresh != worn
    clock.advance(DAY)
    assert code_for(site, who, browser).status_code == 200
    assert device(site, who, browser) == fresh


def test_a_worn_device_counts_for_nothing_where_codes_are_sent(
    default_site: Site, clock: Clock
) -> None:
    """A59: a known device has its own lane at otp.send; one with fifty failures the account's."""
    site, browser = default_site, default_site.browser()

    def charged() -> tuple[int, int]:
        lane = {"account": site.guard.account_key("vera"), "purpose": "sign-in"}
        ours = site.guard.usage("otp.send", **lane)
        known = site.guard.peek("otp.send", **lane, device=device(site, "vera", browser))
        hour = next(each for each in known.verdicts if each.name == "device-hour")
        return next(each.used for each in ours if each.name == "hour"), hour.limit - hour.remaining

    def send() -> int:
        body = {"identifier": "vera", "channel": "sms"}
        return browser.post("/auth/otp/send", json=body).status_code

    body = {"identifier": "vera", "password": "right vera"}
    assert browser.post("/auth/login", json=body).status_code == 200
    assert (send(), charged()) == (202, (0, 1))
    wear_out(site, "vera", browser, clock)
    assert charged() == (0, 0)
    assert (send(), charged()) == (202, (1, 0))


@pytest.mark.parametrize("code", ["wrong", "00000000"])
def test_a_wrong_code_looks_an_account_up_for_everybody(
    default_site: Site, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """A53: the database is asked once for a wrong code, whoever has the name or nobody."""
    site, get = default_site, default_site.people.get
    asked: list[str] = []

    def counted(key: str) -> Person | None:
        asked.append(key)
        return get(key)

    monkeypatch.setattr(site.people, "get", counted)
    lookups = {}
    for number, who in enumerate(("vera", "ghost", "dora", "tess", "nora")):
        client = f"198.18.{number}.1"
        challenge = (site.send_code(who, client=client).json or {})["challenge"]
        asked.clear()
        assert site.verify(challenge, code, client=client).status_code == 401
        lookups[who] = len(asked)
    assert lookups == dict.fromkeys(lookups, 1)


def invite(site: Site, number: int) -> str:
    """Add an account with a phone in one of five ranges; give its name."""
    name = f"user-{number}"
    phone = f"+1415{555 + number % 5}{number:04}"
    site.people.by_key[name] = Person(name, name, None, phone=phone)
    return name


def ask(site: Site, who: str, number: int) -> None:
    """Ask for a code from an address of one's own, and wait until it is sent or not."""
    assert site.send_code(who, client=f"198.{number % 200}.{number // 200}.1").status_code == 202
    site.messages()


def test_an_outage_of_the_provider_stops_nothing(
    default_site: Site, clock: Clock, stops: list[str]
) -> None:
    """A79, A80: sixty codes that never left are none that were ignored: the next one goes out."""
    site = default_site
    site.outbox.failure = ConnectionError("away")
    for number in range(60):
        ask(site, invite(site, number), number)
    assert (site.outbox.tries, site.outbox.messages) == (60, [])
    clock.advance(LIFE)
    site.outbox.failure = None
    for number, who in enumerate(("vera", "omar", "user-1", "user-2"), 60):
        ask(site, who, number)
    assert len(site.messages("code")) == 4
    assert stops == []


def test_notices_by_text_count_for_nothing_where_codes_are_judged(
    default_site: Site, clock: Clock, stops: list[str]
) -> None:
    """A80: texts that hold no code make up for none that was ignored, however many are sent."""
    site = default_site
    hashed = site.spy.hash("right")
    for number in range(38):
        ask(site, invite(site, number), number)
    clock.advance(LIFE)
    for number in range(12):
        name = f"mailless-{number}"
        phone = f"+1415{555 + number % 5}9{number:03}"
        site.people.by_key[name] = Mailless(name, name, hashed, phone=phone)
        for password in ("wrong", "wrong", "wrong", "right"):
            answer = site.login(name, password, client=f"198.51.{number}.1")
        assert answer.status_code == 200
    assert [(each.kind, each.channel) for each in site.messages()[:12]] == [("notice", "sms")] * 12
    usage = site.guard.usage("otp.send", destination=read_phone("+14155559999"))
    assert next(each.used for each in usage if each.name == "country-conversion") == 38
    for number in range(40, 52):
        ask(site, invite(site, number), number)
    clock.advance(LIFE)
    ask(site, "vera", 60)
    assert stops == ["country-conversion"]


def thirty_wrong_codes(site: Site, who: str, clock: Clock) -> None:
    """Give as many in three days as the account's month holds; each at a code that is out."""
    for day in range(3):
        clock.advance(DAY if day else 0)
        for _ in range(2):
            clock.advance(HOUR)
            if site.people.by_key[KEYS[who]].second_factor:
                asked = site.login(who, f"right {who}")
            else:
                asked = site.send_code(who)
            site.messages()
            for number in range(5):
                challenge = (asked.json or {})["challenge"]
                answer = site.verify(challenge, "wrong", client=f"198.18.{number}.1")
                assert answer.status_code == 401
    assert site.people.by_key[KEYS[who]].recovery_required == {"otp.verify"}
    clock.advance(HOUR)


def reset(site: Site, who: str) -> None:
    """Set a new password by the link in the owner's mail."""
    assert site.post("/auth/password/forgot", json={"identifier": who}).status_code == 202
    body = {"token": site.messages("reset")[0].token, "password": f"new for {who}"}
    assert site.post("/auth/password/reset", json=body).status_code == 200


def test_a_reset_opens_the_code_step_of_who_has_no_second_factor(
    default_site: Site, clock: Clock
) -> None:
    """A54: thirty wrong codes shut sign-in by code until its owner resets the password."""
    site = default_site
    thirty_wrong_codes(site, "vera", clock)
    assert site.send_code("vera").status_code == 429
    assert site.login("vera", "right vera").status_code == 200
    reset(site, "vera")
    assert site.people.by_key["key-1"].recovery_required == set()
    assert code_for(site, "vera", site.browser()).status_code == 200


def test_a_reset_does_not_open_a_second_factor(default_site: Site, clock: Clock) -> None:
    """ASVS 6.4.3: a reset is half of a sign-in: with a second factor the code step stays shut."""
    site = default_site
    thirty_wrong_codes(site, "tess", clock)
    assert site.login("tess", "right tess").status_code == 429
    reset(site, "tess")
    assert site.people.by_key["key-4"].recovery_required == {"otp.verify"}
    assert site.login("tess", "new for tess").status_code == 429
    clock.advance(31 * DAY)
    assert site.login("tess", "new for tess").status_code == 429
    assert len(site.messages("code")) == 6


NEW_PASSWORD = "Choose a new password, and you can sign in again:"
SECOND_FACTOR = "Whoever entered them knew your password, so choose a new one:"
WRITE = "Then write to those who run the site: they can let you in again."


SAID: dict[tuple[str, str], tuple[list[str], list[str]]] = {
    ("vera", "email"): ([NEW_PASSWORD], [SECOND_FACTOR, WRITE]),
    ("tess", "email"): ([SECOND_FACTOR, WRITE], [NEW_PASSWORD]),
    ("vera", "sms"): (["Too many wrong codes. Choose a new password to get in"], ["write to"]),
    ("tess", "sms"): (["Choose a new password and write to us to get in"], []),
}


@pytest.mark.parametrize(("who", "channel"), SAID)
def test_the_notice_of_wrong_codes_says_what_helps(
    default_site: Site, clock: Clock, who: str, channel: str
) -> None:
    """Who is shut out of the code step is told of codes, and of what opens it again."""
    site, (said, unsaid) = default_site, SAID[who, channel]
    person = site.people.by_key[KEYS[who]]
    if channel == "sms":
        person.__class__ = Mailless
    thirty_wrong_codes(site, who, clock)
    (notice,) = [each for each in site.messages("notice") if "wrong codes" in each.body]
    to = person.phone if channel == "sms" else f"{who}@example.test"
    assert (notice.channel, notice.to) == (channel, to)
    assert all(each in notice.body for each in said)
    assert not any(each in notice.body for each in [*unsaid, "tries to sign in"])
    assert ("takes no more codes" in notice.subject) is (channel == "email")


def test_an_unlock_link_outlives_a_silent_store(post_site: Site, clock: Clock) -> None:
    """Wherever the store falls silent, a link answered by 503 still ends the wait."""
    for place in count():
        assert post_site.statuses(5) == [401] * 5
        body = {"token": post_site.messages("unlock")[0].token}
        assert post_site.login("vera", "right vera").status_code == 429
        with silent_at(post_site, place):
            answer = post_site.post("/auth/unlock", json=body)
        if answer.status_code == 200:  # what is left after the lock's end is told, not undone
            break
        assert answer.status_code == 503
        assert post_site.post("/auth/unlock", json=body).status_code == 200
        assert post_site.login("vera", "right vera").status_code == 200
        clock.advance(HOUR)
    assert place >= 5  # reserved, whose, whether live, lifted, taken
    assert post_site.login("vera", "right vera").status_code == 200


def test_a_code_outlives_a_new_one_that_could_not_be_made(post_site: Site, clock: Clock) -> None:
    """Wherever the store falls silent, a 503 sends nothing and leaves the code before."""
    for place in count():
        clock.advance(DAY)
        first = post_site.send_code("vera").json or {}
        code = post_site.messages("code")[0].code
        clock.advance(MINUTE)
        with silent_at(post_site, place):
            answer = post_site.send_code("vera", challenge=first["challenge"])
        sent = post_site.messages("code")
        if answer.status_code == 202:
            break
        assert answer.status_code == 503
        assert sent[0].code == code
        assert post_site.verify(first["challenge"], str(code)).status_code == 200
    assert place >= 5  # whose, whether shut, reserved, the wait, made live


@pytest.mark.parametrize("kind", ["json", "data"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/auth/login", {"identifier": "vera", "password": "right vera"}),
        ("/auth/otp/send", {"identifier": "vera", "channel": "sms"}),
        ("/auth/otp/send", {"identifier": "ghost", "channel": "sms"}),
        ("/auth/otp/verify", {"challenge": "CHALLENGE", "code": "CODE"}),
        ("/auth/password/forgot", {"identifier": "vera"}),
        ("/auth/password/reset", {"token": "TOKEN", "password": "a new password"}),
        ("/auth/unlock", {"token": "TOKEN"}),
    ],
)
def test_the_denylist_is_403_on_every_route(
    site_factory: Callable[..., Site], client: valkey.Valkey, path: str, body: Any, kind: str
) -> None:
    """Nothing that such a client holds is looked at or used up, and nothing is counted."""
    site = site_factory(messages={}, AUTHGUARD_POLICY=None, AUTHGUARD_DENYLIST=["203.0.113.0/24"])
    challenge = (site.send_code("vera", client=FAR).json or {})["challenge"]
    site.post("/auth/password/forgot", json={"identifier": "vera"}, client=FAR)
    held = {
        "CHALLENGE": challenge,
        "CODE": site.messages("code")[0].code,
        "TOKEN": site.messages("reset")[0].token,
    }
    body = {name: held.get(value, value) for name, value in body.items()}
    before = {key: client.dump(key) for key in client.scan_iter()}
    for sent in (body, {}, dict.fromkeys(body, "\0")):
        answer = site.post(path, client=HOME, **{kind: sent})
        assert answer.status_code == 403
        assert "Retry-After" not in answer.headers
    assert len(site.messages()) == 2
    assert {key: client.dump(key) for key in client.scan_iter()} == before
    if "CODE" in body.values() or "verify" in path:
        assert site.verify(challenge, str(held["CODE"]), client=FAR).status_code == 200


def test_names_of_nobody_take_no_place_of_the_last_messages(
    post_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the provider hangs, requests for nobody leave half of the queue to owners."""
    wake, busy = threading.Event(), threading.Event()
    send = post_site.outbox.send

    def hang(message: Message) -> None:
        busy.set()
        wake.wait(30)
        send(message)

    state: Any = post_site.state
    monkeypatch.setattr(state.messaging.outbound, "_outgoing", Outgoing(1, 4))
    monkeypatch.setattr(post_site.outbox, "send", hang)
    try:
        assert post_site.send_code("vera").status_code == 202
        assert busy.wait(30)
        for number in range(6):
            body = {"identifier": f"ghost-{number}"}
            answer = post_site.post("/auth/password/forgot", json=body)
            assert answer.status_code == 202
        for who in ("omar", "vera"):
            answer = post_site.post("/auth/password/forgot", json={"identifier": who})
            assert answer.status_code == 202
    finally:
        wake.set()
    assert {each.to for each in post_site.messages("reset")} == {
        "omar@example.test",
        "vera@example.test",
    }


def test_who_has_no_password_is_mailed_none(post_site: Site) -> None:
    """A53: a link would open an account that signs in elsewhere; the answer is everybody's."""
    answers = [
        post_site.post("/auth/password/forgot", json={"identifier": who})
        for who in ("nora", "ghost", "vera")
    ]
    faces = [(each.status_code, each.data, list(each.headers)) for each in answers]
    assert faces[0][0] == 202
    assert faces[0] == faces[1] == faces[2]
    assert [each.to for each in post_site.messages()] == ["vera@example.test"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/auth/login", {"identifier": "vera", "password": "right vera"}),
        ("/auth/otp/send", {"identifier": "vera", "channel": "sms"}),
        ("/auth/password/forgot", {"identifier": "vera"}),
    ],
)
@pytest.mark.parametrize("lacking", ["username", "email", "phone", "session_stamp", "device_stamp"])
def test_an_account_that_lacks_an_attribute_is_named(
    default_site: Site, monkeypatch: pytest.MonkeyPatch, path: str, body: Any, lacking: str
) -> None:
    """B138: AG024 names what an account has not, on whichever route it is found first."""
    vera = default_site.people.by_key["key-1"]
    names = [*vars(vera), "email"]
    left = {name: getattr(vera, name) for name in names if name != lacking}
    monkeypatch.setattr(default_site.people, "find", lambda _typed: type("Row", (), left)())
    with pytest.raises(ConfigurationError, match=f"without {lacking}") as caught:
        default_site.post(path, json=body)
    assert (caught.value.code, caught.value.where) == ("AG024", "blueprint(accounts=…)")
    assert "authguard.accounts.Member" in caught.value.mend
    assert default_site.messages() == []


@pytest.mark.parametrize("lacking", ["active", "password_hash", "second_factor"])
def test_an_account_that_can_not_sign_in_is_named(
    default_site: Site, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """B138: so is what every sign-in needs, before the password is looked at."""
    vera = default_site.people.by_key["key-1"]
    left = {name: getattr(vera, name) for name in [*vars(vera), "email"] if name != lacking}
    monkeypatch.setattr(default_site.people, "find", lambda _typed: type("Row", (), left)())
    with pytest.raises(ConfigurationError, match=f"^AG024 .* without {lacking};"):
        default_site.login("vera", "right vera")
    assert default_site.spy.checks == []


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_every_cookie_of_a_full_sign_in_is_secure_by_https(
    site_factory: Callable[..., Site], scheme: str
) -> None:
    """Session and device cookie, after a password and a code too; by http nobody is shut."""
    site = site_factory(messages={}, AUTHGUARD_BASE_URL=f"{scheme}://app.example")
    cookies = code_for(site, "tess", site.browser()).headers.getlist("Set-Cookie")
    assert sorted(each.partition("=")[0] for each in cookies) == [COOKIE, "session"]
    assert [("; Secure" in each) for each in cookies] == [scheme == "https"] * 2
