"""A forgotten password: a link to the stored address, a new password once, nothing told."""

from __future__ import annotations

import logging
import re
import threading
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, HashingUnavailable, InvalidInput, StoreUnavailable
from authguard.testing import embedded_valkey
from tests.flask.conftest import ALL_OF_S, Person

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey
    from werkzeug.test import TestResponse

    from authguard.accounts import Member
    from authguard.notify import Message
    from tests.conftest import Clock
    from tests.flask.conftest import Site

FORGOT, RESET = "/auth/password/forgot", "/auth/password/reset"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NEW = "a new password"
OTHER = "198.51.100.7"


@dataclass
class Reachable(Person):
    """An account whose address can change, or be missing."""

    mail: str | None = None

    @property
    def email(self) -> str | None:  # type: ignore[override]
        """Where mail goes."""
        return self.mail


def meet(site: Site, mail: str | None = "rita@example.test") -> Reachable:
    """Add rita."""
    rita = Reachable("key-6", "rita", site.spy.hash("right rita"), mail=mail)
    site.people.by_key["key-6"] = rita
    return rita


def forgot(site: Site, who: Any = "vera", **how: Any) -> TestResponse:
    """Ask for a link by JSON."""
    return site.post(FORGOT, json={"identifier": who}, **how)


def reset(site: Site, token: str, password: Any = NEW, **how: Any) -> TestResponse:
    """Set a new password by JSON."""
    return site.post(RESET, json={"token": token, "password": password}, **how)


def link(site: Site, who: str = "vera") -> str:
    """Ask for a link, and give the token that was mailed."""
    assert forgot(site, who).status_code == 202
    token = site.messages("reset")[0].token
    assert token is not None
    return token


def face(answer: TestResponse) -> tuple[int, bytes, list[tuple[str, str]]]:
    """Give all that a client sees."""
    return answer.status_code, answer.data, list(answer.headers)


def left(site: Site, action: str, **who: Any) -> dict[str, int]:
    """Tell how many places of each limit are free."""
    verdicts = site.guard.peek(action, **who).verdicts
    return {verdict.name: verdict.remaining for verdict in verdicts}


@pytest.fixture
def hold_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Site], list[Any]]]:
    """Give a way to keep what would run after the answers from running."""
    with monkeypatch.context() as holding:

        def hold(site: Site) -> list[Any]:
            jobs: list[Any] = []

            def put(job: Any, *, spare: bool = False) -> bool:
                jobs.append(job)
                return True

            assert site.state is not None
            assert site.state.messaging is not None
            holding.setattr(site.state.messaging.outbound._outgoing, "put", put)
            return jobs

        yield hold


@pytest.mark.parametrize("kind", ["json", "data"])
def test_every_name_is_accepted_alike(
    post_site: Site, client: valkey.Valkey, hold_back: Callable[[Site], list[Any]], kind: str
) -> None:
    """A52: known, unknown, disabled and without e-mail: equal answers, store commands, jobs."""
    meet(post_site, mail=None)
    jobs, faces, work = hold_back(post_site), [], []

    def commands() -> dict[str, int]:
        stats: Any = client.info("commandstats")
        return {name: row["calls"] for name, row in stats.items() if "info" not in name}

    for name in ("vera", "ghost", "dora", "rita", "tess"):
        before, waiting = commands(), len(jobs)
        body: dict[str, Any] = {kind: {"identifier": name}}
        answer = post_site.post(FORGOT, **body)
        after = commands()
        faces.append(face(answer))
        if name != "vera":  # the first request loads scripts and opens the connection
            work.append({key: after[key] - before.get(key, 0) for key in after})
        assert len(jobs) - waiting == 1
    assert faces[0][0] == 202
    assert all(each == faces[0] for each in faces)
    assert all(each == work[0] for each in work)
    assert "Set-Cookie" not in dict(faces[0][2])
    assert post_site.spy.checks == []
    for job in jobs:
        job()
    assert [sent.to for sent in post_site.outbox.messages] == [
        "vera@example.test",
        "tess@example.test",
    ]


def test_it_goes_to_the_stored_address_alone(post_site: Site) -> None:
    """A76: whatever spelling was typed, one mail goes to the one stored address."""
    forgot(post_site, " VERA@Example.test")
    (sent,) = post_site.messages()
    assert (sent.kind, sent.channel, sent.to) == ("reset", "email", "vera@example.test")


@pytest.mark.parametrize(
    "who",
    [
        ["vera@example.test", "eve@example.test"],
        {"email": "vera@example.test"},
        "vera@example.test,eve@example.test",
        "vera@example.test;eve@example.test",
        "vera@example.test\r\nBcc: eve@example.test",
        "vera@example.test\nBcc: eve@example.test",
        "vera@example.test%0d%0aBcc:eve@example.test",
        "Vera <vera@example.test>, eve@example.test",
        "vera@example.test\0eve@example.test",
    ],
)
def test_nobody_adds_a_recipient(post_site: Site, who: Any) -> None:
    """A76: two addresses, or one with a header in it, are refused or nobody's: nothing is sent."""
    assert forgot(post_site, who).status_code in (400, 202)
    twice = "identifier=vera%40example.test&identifier=eve%40example.test"
    form = {"data": twice, "content_type": "application/x-www-form-urlencoded"}
    assert post_site.post(FORGOT, **form).status_code == 400
    assert post_site.messages() == []


def test_a_query_does_not_name_another(post_site: Site) -> None:
    """A76: a name in the query beside that of the body, or alone, sends nothing."""
    assert forgot(post_site, "vera", query_string={"identifier": "omar"}).status_code == 400
    assert post_site.post(FORGOT, query_string={"identifier": "vera"}).status_code == 400
    assert post_site.messages() == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"X-Forwarded-Host": "evil.example"},
        {"Forwarded": "host=evil.example;proto=http"},
        {"X-Original-Host": "evil.example", "X-Host": "evil.example"},
        {"Host": "app.example@evil.example"},
        {"Host": "app.example:evil", "X-Forwarded-Proto": "javascript"},
        {"X-Forwarded-Prefix": "//evil.example", "X-Rewrite-Url": "//evil.example"},
    ],
)
def test_links_begin_with_the_configured_base(post_site: Site, headers: dict[str, str]) -> None:
    """CS-Forgot: a link begins with AUTHGUARD_BASE_URL, whatever the request says of its host."""
    forgot(post_site, headers=headers)
    (sent,) = post_site.messages("reset")
    assert re.findall(r"https?://\S+", sent.body) == [
        f"http://app.example/auth/password/reset?token={sent.token}"
    ]
    assert "evil" not in sent.subject + sent.body


def test_links_keep_the_path_that_the_app_is_under(site_factory: Callable[..., Site]) -> None:
    """A base with a path is kept, with and without a slash at its end."""
    site = site_factory(messages={}, AUTHGUARD_BASE_URL="https://example.com/app/")
    forgot(site)
    token = site.messages("reset")[0].token
    body = site.messages("reset")[0].body
    assert f"\nhttps://example.com/app/auth/password/reset?token={token}\n" in body


def test_without_a_base_the_app_does_not_start(site_factory: Callable[..., Site]) -> None:
    """AG043: no link is ever made from a request's host, so the base must be set."""
    with pytest.raises(ConfigurationError, match="AG043 AUTHGUARD_BASE_URL: is missing"):
        site_factory(messages={}, AUTHGUARD_BASE_URL=None)


def test_a_token_is_256_random_bits(post_site: Site) -> None:
    """A74: a token is 43 URL-safe characters, 32 bytes, and another one each time."""
    tokens = [link(post_site) for _ in range(3)]
    assert len(set(tokens)) == 3
    for token in tokens:
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
        assert len(urlsafe_b64decode(token + "=")) == 32


def test_a_link_sets_the_password_once(post_site: Site) -> None:
    """A74: the new password signs in and the old one doesn't; the same link again is 400."""
    token = link(post_site)
    answer = reset(post_site, token)
    assert (answer.status_code, answer.json) == (200, {"status": "reset"})
    assert post_site.login("vera", "right vera").status_code == 401
    assert post_site.login("vera", NEW).status_code == 200
    assert reset(post_site, token, "another password").status_code == 400
    assert post_site.login("vera", NEW).status_code == 200


@pytest.mark.parametrize(("age_ms", "status"), [(30 * MINUTE - 1, 200), (30 * MINUTE, 400)])
def test_a_link_lives_half_an_hour(post_site: Site, clock: Clock, age_ms: int, status: int) -> None:
    """A74: good for 30 minutes to the millisecond, by the guard's clock."""
    token = link(post_site)
    clock.advance(age_ms)
    assert reset(post_site, token).status_code == status


@pytest.mark.parametrize("round_", range(5))
def test_of_twenty_at_once_one_is_believed(
    post_site: Site, volley: Callable[[int, Callable[[int], int]], list[int]], round_: int
) -> None:
    """A74: twenty posts of one link at the same moment set exactly one password."""
    token, kept = link(post_site), []
    keep = post_site.people.set_password

    def set_password(key: str, new: str) -> None:
        kept.append(new)
        keep(key, new)

    post_site.people.set_password = set_password  # type: ignore[method-assign]
    answers = volley(
        20, lambda n: reset(post_site, token, f"password {n}", client=f"192.0.2.{n}").status_code
    )
    assert sorted(answers) == [200] + [400] * 19
    assert len(kept) == 1
    winner = f"password {answers.index(200)}"
    assert post_site.login("vera", winner).status_code == 200


def test_only_the_newest_link_works(post_site: Site) -> None:
    """A74: of two outstanding links the older is dead, and stays so after the newer was used."""
    first, second = link(post_site), link(post_site)
    assert reset(post_site, first).status_code == 400
    assert reset(post_site, second).status_code == 200
    assert reset(post_site, first).status_code == 400


CHANGES: dict[str, dict[str, Any]] = {
    "password": {"password_hash": "another"},
    "e-mail": {"mail": "new@example.test"},
    "e-mail removed": {"mail": None},
    "sessions ended": {"session_stamp": "another"},
    "disabled": {"active": False},
    "deleted": {},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_account_kills_its_link(post_site: Site, change: str) -> None:
    """A74: after a change of password, e-mail or sessions, or without the account: 400."""
    rita = meet(post_site)
    token = link(post_site, "rita")
    for name, value in CHANGES[change].items():
        setattr(rita, name, value)
    if change == "deleted":
        del post_site.people.by_key["key-6"]
    before = rita.password_hash
    assert reset(post_site, token).status_code == 400
    assert rita.password_hash == before


def test_a_secret_for_one_purpose_is_none_for_another(post_site: Site) -> None:
    """A69, A74: unlock token, challenge id and code set no password; a reset token unlocks not."""
    post_site.statuses(5)
    unlock_token = post_site.messages("unlock")[0].token
    challenge = (post_site.send_code().json or {})["challenge"]
    code = post_site.messages("code")[0].code
    reset_token = link(post_site)
    for foreign in (unlock_token, challenge, code):
        assert reset(post_site, str(foreign)).status_code == 400
    for foreign in (reset_token, challenge, code):
        answer = post_site.post("/auth/unlock", json={"token": foreign})
        assert answer.status_code == 400
    assert post_site.verify(reset_token, str(code)).status_code == 401
    assert reset(post_site, reset_token).status_code == 200


def test_one_answer_for_every_bad_token(post_site: Site, clock: Clock) -> None:
    """A74: used, replaced, too old, for another purpose, made up: one 400, byte for byte."""
    replaced, used = link(post_site), link(post_site)
    post_site.statuses(5, "omar")
    other_purpose = post_site.messages("unlock")[0].token
    reset(post_site, used)
    old = link(post_site, "tess")
    bad = [
        replaced,
        used,
        other_purpose,
        "A" * 43,
        used[:-1],
        used + "A",
        "x",
        "x" * 5000,
        "\u00e4",
    ]
    faces = [face(reset(post_site, str(token))) for token in bad]
    clock.advance(30 * MINUTE)
    faces.append(face(reset(post_site, old)))
    assert faces[0][0] == 400
    assert all(each == faces[0] for each in faces)
    assert dict(faces[0][2])["Content-Type"] == "application/problem+json"
    assert b"vera" not in faces[0][1]


def test_a_token_is_its_own_accounts(post_site: Site) -> None:
    """A74: whatever other fields say, the account comes from the token alone."""
    token = link(post_site)
    before = post_site.people.by_key["key-2"].password_hash
    body = {"token": token, "password": NEW}
    more = {"user": "omar", "identifier": "omar", "account": "key-2", "email": "omar@example.test"}
    assert post_site.post(RESET, json=body | more).status_code == 200
    assert post_site.people.by_key["key-2"].password_hash == before
    assert post_site.login("vera", NEW).status_code == 200


def test_a_token_in_the_query_alone_is_no_post(post_site: Site) -> None:
    """The token of a POST comes in its body: what stands in logs of addresses is not enough."""
    token = link(post_site)
    answer = post_site.post(RESET, query_string={"token": token}, data={"password": NEW})
    assert answer.status_code == 400
    assert reset(post_site, token).status_code == 200


def test_a_reset_ends_every_session(post_site: Site) -> None:
    """A56, A61: whoever was signed in is out, in all browsers, the resetting one as well."""
    browsers = [post_site.browser(), post_site.browser(OTHER)]
    credentials = {"identifier": "vera", "password": "right vera"}
    for browser in browsers:
        assert browser.post("/auth/login", json=credentials).status_code == 200
        assert browser.get("/auth/me").status_code == 200
    token = link(post_site)
    body = {"token": token, "password": NEW}
    assert browsers[1].post(RESET, json=body).status_code == 200
    assert [browser.get("/auth/me").status_code for browser in browsers] == [401, 401]


def test_a_reset_does_not_sign_in(post_site: Site) -> None:
    """ASVS 6.4.3: a reset ends at the sign-in: no session and no device cookie come with it."""
    browser = post_site.browser()
    browser.post("/auth/login", json={"identifier": "omar", "password": "right omar"})
    answer = browser.post(RESET, json={"token": link(post_site), "password": NEW})
    assert answer.status_code == 200
    assert "authguard_device" not in "".join(answer.headers.getlist("Set-Cookie"))
    assert browser.get("/auth/me").status_code == 401


def test_a_second_factor_is_asked_for_after_a_reset(post_site: Site) -> None:
    """A56, ASVS 6.4.3: a reset replaces the password alone; the code is still due."""
    assert reset(post_site, link(post_site, "tess")).status_code == 200
    browser = post_site.browser()
    answer = browser.post("/auth/login", json={"identifier": "tess", "password": NEW})
    assert (answer.json or {})["status"] == "otp_required"
    assert browser.get("/auth/me").status_code == 401


def test_a_reset_ends_what_the_old_password_had_begun(post_site: Site) -> None:
    """A61: a code that the old password asked for signs nobody in once there is a new one."""
    challenge = (post_site.login("tess", "right tess").json or {})["challenge"]
    code = str(post_site.messages("code")[0].code)
    assert reset(post_site, link(post_site, "tess")).status_code == 200
    assert post_site.verify(challenge, code).status_code == 401


def test_a_locked_owner_can_reset(post_site: Site) -> None:
    """A56: while sign-in is locked a link is mailed and works, and the new password is let in."""
    post_site.statuses(5)
    assert post_site.login("vera", "right vera").status_code == 429
    assert reset(post_site, link(post_site)).status_code == 200
    assert post_site.login("vera", NEW).status_code == 200


def fill(site: Site, times: int, who: str = "vera") -> None:
    """Fail as often from addresses of ever new networks."""
    for number in range(times):
        answer = site.login(who, client=f"100.{64 + number}.1.1")
        assert answer.status_code == 401


def test_what_a_reset_lifts_and_what_it_leaves(default_site: Site, clock: Clock) -> None:
    """A56: lock, short log and own pair are lifted; a day that isn't full and all others stay."""
    site, vera = default_site, site_key(default_site)
    site.statuses(4)
    site.statuses(4, client=OTHER)
    site.statuses(2, client="192.0.2.7")  # the tenth: locked
    challenge = (site.send_code().json or {})["challenge"]
    site.verify(challenge, "00000000")
    codes = left(site, "otp.verify", account=vera, client=site.home)
    assert site.login("vera", "right vera").status_code == 429
    assert reset(site, link(site)).status_code == 200
    home = left(site, "login", account=vera, client=site.home)
    assert (home["account"], home["pair"], home["day"], home["month"]) == (10, 5, 10, 90)
    assert (home["client"], home["client-day"], home["network"]) == (26, 146, 116)
    other = left(site, "login", account=vera, client=OTHER)
    assert (other["pair"], other["client"]) == (1, 26)
    assert left(site, "otp.verify", account=vera, client=site.home) == codes
    assert site.login("vera", NEW).status_code == 200


def site_key(site: Site, name: str = "vera") -> Any:
    """Give the key that an account counts under."""
    return site.guard.account_key(name)


def test_a_full_day_does_not_keep_the_owner_out(default_site: Site, clock: Clock) -> None:
    """A54, A56: a day that an attacker has filled is lifted by the owner's reset."""
    site = default_site
    fill(site, 10)
    clock.advance(15 * MINUTE)
    fill(site, 10)
    clock.advance(2 * HOUR)  # the second lock is over: the day alone refuses
    decision = site.guard.peek("login", account=site_key(site), client=site.home)
    assert decision.refused_by == ("day",)
    assert reset(site, link(site)).status_code == 200
    assert site.login("vera", NEW).status_code == 200
    assert left(site, "login", account=site_key(site), client=site.home)["month"] == 80


def test_an_operators_block_stays(post_site: Site) -> None:
    """B146: a reset gives a new password, and the block goes on refusing it."""
    token = link(post_site)
    post_site.guard.block(account=site_key(post_site))
    assert reset(post_site, token).status_code == 200
    assert post_site.login("vera", NEW).status_code == 429
    post_site.guard.unblock(account=site_key(post_site))
    assert post_site.login("vera", NEW).status_code == 200


def test_a_blocked_client_resets_nothing(post_site: Site) -> None:
    """A block of a client holds for links, too, and leaves them good for its owner elsewhere."""
    token = link(post_site)
    post_site.guard.block(client=OTHER)
    assert reset(post_site, token, client=OTHER).status_code == 429
    assert forgot(post_site, client=OTHER).status_code == 429
    assert reset(post_site, token).status_code == 200


def test_asking_changes_nothing(post_site: Site) -> None:
    """A57: a hundred requests lock nobody, end no session, and leave the password as it was."""
    browser = post_site.browser()
    credentials = {"identifier": "vera", "password": "right vera"}
    assert browser.post("/auth/login", json=credentials).status_code == 200
    before = (post_site.people.by_key["key-1"].password_hash, left(post_site, "login", account="x"))
    answers = [forgot(post_site, client=f"198.51.{n}.7").status_code for n in range(100)]
    assert answers == [202] * 3 + [429] * 97
    assert len(post_site.messages()) == 3
    assert post_site.people.by_key["key-1"].password_hash == before[0]
    assert browser.get("/auth/me").status_code == 200
    assert post_site.used() == 0
    assert post_site.login("vera", "right vera").status_code == 200


def test_asking_does_not_lift_a_lock(post_site: Site) -> None:
    """A57: a request alone, and a link that is only looked at, open nothing."""
    post_site.statuses(5)
    post_site.browser().get(RESET, query_string={"token": link(post_site)})
    assert post_site.login("vera", "right vera").status_code == 429


SPELLINGS = ["vera", "Vera", "VERA", " vera "]
GHOSTS = ["ghost", "Ghost", "GHOST", " ghost "]


@pytest.mark.parametrize("who", ["vera", "ghost"])
def test_an_inbox_gets_three_an_hour(default_site: Site, clock: Clock, who: str) -> None:
    """A77: ten requests in an hour, ten addresses, any spelling: three; then hour and day hold."""
    site, waits = default_site, []
    names = {"vera": [*SPELLINGS, "vera@example.test", "Vera@Example.Test"], "ghost": GHOSTS}

    def ask(number: int) -> int:
        name = names[who][number % len(names[who])]
        answer = forgot(site, name, client=f"198.51.{number}.7")
        site.messages()  # sent, before the clock moves on
        waits.append(int(answer.headers.get("Retry-After", 0)))
        return answer.status_code

    assert [ask(0), ask(1)] == [202, 429]
    assert waits == [0, 60]
    clock.advance(MINUTE)
    assert [ask(2), ask(3)] == [202, 429]
    clock.advance(MINUTE)
    assert [ask(4), ask(5), ask(6)] == [202, 429, 429]
    assert waits[-1] == 3480
    clock.advance(HOUR - 2 * MINUTE)
    assert [ask(7), ask(8)] == [202, 429]
    clock.advance(HOUR)
    assert [ask(9), ask(10)] == [202, 429]
    assert waits[-1] == 22 * 3600
    clock.advance(22 * HOUR - 1)
    assert ask(11) == 429
    clock.advance(1)
    assert ask(12) == 202
    assert len(site.messages("reset")) == (6 if who == "vera" else 0)


def test_a_cooldown_of_a_minute(default_site: Site, clock: Clock) -> None:
    """A77: sixty seconds between two mails to one account, to the millisecond."""
    assert forgot(default_site).status_code == 202
    clock.advance(MINUTE - 1)
    assert forgot(default_site, client=OTHER).headers["Retry-After"] == "1"
    clock.advance(1)
    assert forgot(default_site, client=OTHER).status_code == 202


def test_a_mailbox_behind_many_accounts_gets_five_a_day(default_site: Site, clock: Clock) -> None:
    """A21: what goes to one mailbox counts together; the answers stay everybody's."""
    for number in range(7):
        alias = Reachable(f"key-1{number}", f"alias{number}", "hash", mail=f"v+{number}@gmail.com")
        default_site.people.by_key[alias.key] = alias
    for number in range(7):
        answer = forgot(default_site, f"alias{number}", client=f"198.51.{number}.7")
        assert answer.status_code == 202
    assert len(default_site.messages("reset")) == 5


def test_looking_at_a_link_uses_nothing_up(post_site: Site, client: valkey.Valkey) -> None:
    """A74: GET and HEAD of a link change nothing in the store; its page tells nobody the token."""
    token = link(post_site)
    kept = {key: client.get(key) for key in client.scan_iter()}
    browser = post_site.browser()
    for _ in range(50):
        page = browser.get(RESET, query_string={"token": token})
        assert browser.head(RESET, query_string={"token": token}).status_code == 200
    assert {key: client.get(key) for key in client.scan_iter()} == kept
    assert page.status_code == 200
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["Cache-Control"] == "no-store"
    assert f'name="token" value="{token}"' in page.text
    assert "http://" not in page.text
    assert reset(post_site, token).status_code == 200


def test_the_page_is_the_same_for_any_token(post_site: Site) -> None:
    """B096: the page of a link tells nothing of it, nor runs what stands in its place."""
    good, bad = link(post_site), 'A"><script>alert(1)</script>'
    browser = post_site.browser()
    pages = [browser.get(RESET, query_string={"token": each}).text for each in (good, "A" * 43)]
    assert pages[0].replace(good, "A" * 43) == pages[1]
    assert "<script>alert" not in browser.get(RESET, query_string={"token": bad}).text


@pytest.mark.parametrize("path", [RESET, "/auth/unlock"])
def test_an_address_that_is_no_text_is_400(post_site: Site, path: str) -> None:
    """B158: a link whose query is no UTF-8 is answered 400, never 500."""
    environ = {"QUERY_STRING": "token=\xff"}
    assert post_site.browser().get(path, environ_overrides=environ).status_code == 400


BAD_PASSWORDS: dict[str, Any] = {
    "short": "seven77",
    "empty": "",
    "long": "x" * 1025,
    "long in bytes": "\u00e4" * 513,
    "a list": [NEW, "right vera"],
    "a number": 12345678,
    "null": None,
    "a surrogate": "12345678\ud800",
}


@pytest.mark.parametrize("kind", BAD_PASSWORDS)
def test_a_bad_password_leaves_the_link_alive(post_site: Site, kind: str) -> None:
    """A password that can't be or isn't good enough is 400, and the link works afterwards."""
    token = link(post_site)
    answer = reset(post_site, token, BAD_PASSWORDS[kind])
    assert (answer.status_code, answer.mimetype) == (400, "application/problem+json")
    assert "password" in (answer.json or {})["detail"]
    assert post_site.login("vera", "right vera").status_code == 200
    assert reset(post_site, token, "x" * 1024).status_code == 200
    assert post_site.login("vera", "x" * 1024).status_code == 200


def test_the_form_asks_again_for_a_better_password(post_site: Site) -> None:
    """A form with a short password comes back with its token, and says what is wrong."""
    token = link(post_site)
    page = post_site.post(RESET, data={"token": token, "password": "short"})
    assert (page.status_code, page.mimetype) == (400, "text/html")
    assert "at least 8 characters" in page.text
    assert f'value="{token}"' in page.text
    assert "short" not in page.text
    done = post_site.post(RESET, data={"token": token, "password": NEW})
    assert done.status_code == 200
    assert "Your password is changed" in done.text
    dead = post_site.post(RESET, data={"token": token, "password": NEW})
    assert (dead.status_code, dead.mimetype) == (400, "text/html")


def test_the_form_for_a_link(post_site: Site) -> None:
    """By form a link is asked for and the answer is a page with 202, the same for nobody."""
    assert post_site.browser().get(FORGOT).status_code == 200
    pages = [post_site.post(FORGOT, data={"identifier": name}) for name in ("vera", "ghost")]
    assert [page.status_code for page in pages] == [202, 202]
    assert pages[0].text == pages[1].text


def picky(calls: list[tuple[str, str]]) -> Callable[[str, Member], None]:
    """Give a check of new passwords that knows whose they are."""

    def accept(password: str, account: Member) -> None:
        calls.append((password, account.key))
        if account.username in password:
            raise InvalidInput("password", "must not hold your name")

    return accept


def test_an_app_may_refuse_passwords(site_factory: Callable[..., Site]) -> None:
    """The hook sees password and account; what it raises is the 400, and the link stays alive."""
    calls: list[tuple[str, str]] = []
    options = {"accept_password": picky(calls)}
    site = site_factory(messages=options, AUTHGUARD_POLICY=ALL_OF_S)
    token = link(site)
    answer = reset(site, token, "vera rules")
    assert (answer.status_code, (answer.json or {})["detail"]) == (
        400,
        "password: must not hold your name",
    )
    assert reset(site, token, "short").status_code == 200  # the app's rule stands for ours
    assert calls == [("vera rules", "key-1"), ("short", "key-1")]


def test_a_dead_link_asks_nothing_of_the_account(site_factory: Callable[..., Site]) -> None:
    """A74: with a dead link no rule that knows the account runs, so it is nobody's oracle."""
    calls: list[tuple[str, str]] = []
    options = {"accept_password": picky(calls)}
    site = site_factory(messages=options, AUTHGUARD_POLICY=ALL_OF_S)
    replaced, used = link(site), link(site)
    assert reset(site, used).status_code == 200
    calls.clear()
    never = face(reset(site, "A" * 43, "vera rules"))
    for token in (replaced, used):
        assert face(reset(site, token, "vera rules")) == never
    assert calls == []


def test_no_room_to_hash_leaves_the_link_alive(
    post_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B056: 503 with Retry-After, the password stays, nobody is charged, and the link works."""
    token = link(post_site)

    def full(_password: str) -> str:
        raise HashingUnavailable("hash queue full")

    with monkeypatch.context() as busy:
        busy.setattr(post_site.spy, "hash", full)
        for _ in range(3):
            answer = reset(post_site, token)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert post_site.login("vera", "right vera").status_code == 200
    assert left(post_site, "password.reset", client=post_site.home)["client"] == 20
    assert reset(post_site, token).status_code == 200


def test_guesses_at_tokens_are_limited_by_client(post_site: Site) -> None:
    """B096: twenty bad tokens an hour from one client; then even the right one is not looked at."""
    token = link(post_site)
    answers = [reset(post_site, f"{n:043}").status_code for n in range(21)]
    assert answers == [400] * 20 + [429]
    assert reset(post_site, token).status_code == 429
    assert reset(post_site, token, client=OTHER).status_code == 200


def test_a_right_link_costs_its_client_nothing(post_site: Site) -> None:
    """A success gives its place back."""
    reset(post_site, link(post_site))
    assert left(post_site, "password.reset", client=post_site.home)["client"] == 20


@pytest.mark.parametrize("path", [FORGOT, RESET, "/auth/unlock"])
@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil"}])
def test_other_sites_send_nothing(post_site: Site, path: str, headers: dict[str, str]) -> None:
    """A62: a form that another site sends is 403; nothing goes out and no link is used up."""
    post_site.statuses(5)
    tokens = {RESET: link(post_site), "/auth/unlock": post_site.messages("unlock")[0].token}
    sent = len(post_site.messages())
    data = {"identifier": "vera", "token": tokens.get(path), "password": NEW}
    data = {key: value for key, value in data.items() if value is not None}
    assert post_site.post(path, data=data, headers=headers).status_code == 403
    assert len(post_site.messages()) == sent
    if path != FORGOT:
        assert post_site.post(path, data=data).status_code == 200


class Losing:
    """A notifier that takes a message and says that it has failed."""

    def __init__(self) -> None:
        self.lost: list[Message] = []

    def send(self, message: Message) -> None:
        """Lose it."""
        self.lost.append(message)
        raise OSError("no such mailbox: vera@example.test")


def test_a_link_that_was_not_sent_is_dead(
    site_factory: Callable[..., Site], caplog: pytest.LogCaptureFixture
) -> None:
    """A79: where the provider fails the answer is 202 all the same, and that link is void."""
    losing = Losing()
    site = site_factory(messages={"notifier": losing}, AUTHGUARD_POLICY=ALL_OF_S)
    assert forgot(site).status_code == 202
    site.messages()
    (lost,) = losing.lost
    assert reset(site, str(lost.token)).status_code == 400
    assert "vera" not in caplog.text
    assert str(lost.token) not in caplog.text


def test_a_slow_provider_holds_nobody_up(site_factory: Callable[..., Site]) -> None:
    """A79: the answer is there before the mail has gone: it tells nobody whether one goes."""
    gate = threading.Event()

    class Slow:
        def send(self, _message: Message) -> None:
            assert gate.wait(30)

    site = site_factory(messages={"notifier": Slow()}, AUTHGUARD_POLICY=ALL_OF_S)
    assert forgot(site).status_code == 202
    gate.set()


def test_without_the_store_nothing_is_sent_or_set(site_factory: Callable[..., Site]) -> None:
    """A86: 503 for asking, resetting and unlocking; no mail goes, and the password stays."""
    with embedded_valkey() as server:
        site = site_factory(
            messages={},
            AUTHGUARD_STORE_URL=server.url,
            AUTHGUARD_POLICY=ALL_OF_S,
            AUTHGUARD_DEADLINE_MS=2_000,
        )
        token = link(site)
    before = site.people.by_key["key-1"].password_hash
    answers = [
        forgot(site, "omar"),
        reset(site, token),
        site.post("/auth/unlock", json={"token": token}),
    ]
    assert [answer.status_code for answer in answers] == [503] * 3
    assert all(int(answer.headers["Retry-After"]) >= 5 for answer in answers)
    assert site.people.by_key["key-1"].password_hash == before
    assert len(site.messages()) == 1


def test_a_new_password_stands_though_the_store_goes(
    post_site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What follows a new password can't undo it: 200, and the log says that the lock stays."""
    post_site.statuses(5)
    token = link(post_site)

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("timeout")

    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(type(post_site.guard), "recover", away)
    assert reset(post_site, token).status_code == 200
    assert "the lock stays after a reset" in caplog.text
    assert post_site.login("vera", NEW).status_code == 429
    assert post_site.spy.real.verify(post_site.people.by_key["key-1"].password_hash, NEW)
    assert post_site.messages()[0].kind == "notice"
