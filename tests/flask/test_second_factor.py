"""A code after the password: tess has a second factor, and neither half opens alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard.flask import signals
from authguard.identity import AccountKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

    Volley = Callable[[int, Callable[[int], int]], list[int]]

DAY_MS = 86_400_000
JSON = {"Accept": "application/json"}
RIGHT = {"identifier": "tess", "password": "right tess"}


def first_half(browser: FlaskClient) -> tuple[str, int]:
    """Prove the password; give the challenge, and the wait until the next code."""
    answer = browser.post("/auth/login", json=RIGHT)
    assert answer.status_code == 200
    assert answer.json is not None
    assert answer.json["status"] == "otp_required"
    assert answer.json.keys() == {"status", "challenge", "retry_after"}
    return answer.json["challenge"], answer.json["retry_after"]


def enter(browser: FlaskClient, challenge: str, code: str) -> TestResponse:
    """Answer the challenge."""
    return browser.post("/auth/otp/verify", json={"challenge": challenge, "code": code})


def newest(site: Site) -> str:
    """Give the code that went out last."""
    code = site.messages("code")[0].code
    assert code is not None
    return code


def wrong(code: str) -> str:
    """Give another code of six digits."""
    return f"{(int(code) + 1) % 10**6:06}"


def is_in(browser: FlaskClient) -> bool:
    """Tell whether somebody is signed in."""
    return browser.get("/auth/me", headers=JSON).status_code == 200


def guesses(site: Site) -> int:
    """Tell how many wrong codes stand in the account's log."""
    verdicts = site.guard.peek("otp.verify", account="key-4", client=site.home).verdicts
    verdict = next(each for each in verdicts if each.name in ("account", "day"))
    return int(verdict.limit - verdict.remaining)


def test_both_halves(post_site: Site) -> None:
    """A85: after the password six digits are due; only then is there a session."""
    browser = post_site.browser()
    challenge, wait_s = first_half(browser)
    assert wait_s == 60
    assert not is_in(browser)
    (message,) = post_site.messages()
    assert (message.kind, message.channel, message.to) == ("code", "sms", "+14155550103")
    code = newest(post_site)
    assert (len(code), code.isascii() and code.isdecimal()) == (6, True)
    answer = enter(browser, challenge, code)
    assert (answer.status_code, answer.json) == (200, {"status": "authenticated"})
    assert is_in(browser)
    assert guesses(post_site) == 0


def test_both_halves_by_form(post_site: Site) -> None:
    """The same with forms: from the password's page to the code's, and on to the app."""
    browser = post_site.browser()
    answer = browser.post("/auth/login", data=RIGHT)
    assert (answer.status_code, answer.location) == (303, "/auth/otp/verify")
    assert not is_in(browser)
    shown = browser.get("/auth/otp/verify").text
    challenge = shown.partition('name="challenge" value="')[2][:22]
    form = {"challenge": challenge, "code": newest(post_site)}
    answer = browser.post("/auth/otp/verify", data=form)
    assert (answer.status_code, answer.location) == (303, "/auth/me")
    assert is_in(browser)


def test_by_mail_where_there_is_no_phone(site_factory: Callable[..., Site], clock: Clock) -> None:
    """Who has no phone gets the code by mail, if the app says so of second factors."""
    options = {"second_factor_channels": ("sms", "email")}
    site = site_factory(clock=clock, messages=options, AUTHGUARD_POLICY=None)
    site.people.by_key["key-4"].phone = None
    challenge, _ = first_half(site.browser())
    (message,) = site.messages("code")
    assert (message.channel, message.to) == ("email", "tess@example.test")
    assert site.verify(challenge, newest(site)).status_code == 200


def test_the_requester_does_not_choose_the_channel(default_site: Site, clock: Clock) -> None:
    """A69: asked for by mail, a second factor's code goes to the phone: no mailbox is enough."""
    browser = default_site.browser()
    challenge, _ = first_half(browser)
    default_site.messages()
    clock.advance(30_000)
    body = {"identifier": "tess", "channel": "email", "challenge": challenge}
    assert browser.post("/auth/otp/send", json=body).status_code == 202
    sent = default_site.messages("code")
    assert [(message.channel, message.to) for message in sent] == [("sms", "+14155550103")] * 2


def test_no_channel_no_second_factor(site_factory: Callable[..., Site]) -> None:
    """Where no way is left for its codes, such an account is never signed in by half."""
    site = site_factory(messages={"channels": ("email",), "sms_countries": ()})
    assert site.login("tess", "right tess").status_code == 401
    assert site.login("vera", "right vera").status_code == 200


def test_a_code_page_that_was_left_open(default_site: Site, clock: Clock) -> None:
    """Once the challenge is over, a new code needs the password again, and the page says so."""
    browser = default_site.browser()
    challenge, _ = first_half(browser)
    default_site.messages()
    clock.advance(700_000)
    form = {"identifier": "tess", "channel": "sms", "challenge": challenge}
    page = browser.post("/auth/otp/send", data=form)
    assert page.status_code == 401
    assert "Sign in again" in page.text
    assert len(default_site.messages("code")) == 1


def test_failures_before_the_right_password_are_told(default_site: Site) -> None:
    """ASVS 6.3.5: after several failures the owner hears of the right password, code or not."""
    for number in range(4):
        default_site.login("tess", "wrong", client=f"198.51.{number}.1")
    first_half(default_site.browser())
    (notice,) = default_site.messages("notice")
    assert "entered right, after several tries that failed" in notice.body


def test_nowhere_to_send_a_code(
    site_factory: Callable[..., Site], caplog: pytest.LogCaptureFixture
) -> None:
    """An account that no code can reach isn't signed in by half, and the operator is told."""
    site = site_factory(messages={"channels": ("sms",)})
    site.people.by_key["key-4"].phone = None
    browser = site.browser()
    challenge, _ = first_half(browser)
    assert site.messages() == []
    assert "nowhere to send its code" in caplog.text
    assert enter(browser, challenge, "123456").status_code == 401
    assert not is_in(browser)


def test_a_session_for_each_step(post_site: Site) -> None:
    """A61: the session is another one after each of the two steps, and the old one is dead."""
    browser = post_site.browser()
    kept: list[str] = []

    def session_cookie() -> str:
        cookie = browser.get_cookie("session")
        return "" if cookie is None else cookie.value

    with browser.session_transaction() as session:
        session["planted"] = "by somebody else"
    kept.append(session_cookie())
    challenge, _ = first_half(browser)
    kept.append(session_cookie())
    with browser.session_transaction() as session:
        assert "planted" not in session
        waiting = session["authguard.session"]
        assert "authguard.account" not in session
    enter(browser, challenge, newest(post_site))
    kept.append(session_cookie())
    with browser.session_transaction() as session:
        assert session["authguard.session"] != waiting
        assert "authguard.pending" not in session
    assert len(set(kept)) == 3
    for old in kept[:2]:
        other = post_site.browser()
        other.set_cookie("session", old)
        assert not is_in(other)


def test_a_second_start_within_the_wait(post_site: Site, clock: Clock) -> None:
    """B103: signing in again within the wait sends nothing; the code under way still works."""
    challenge, _ = first_half(post_site.browser())
    clock.advance(5_000)
    browser = post_site.browser("198.51.100.7")
    assert first_half(browser) == (challenge, 55)
    assert len(post_site.messages("code")) == 1
    assert enter(browser, challenge, newest(post_site)).status_code == 200


def test_a_second_start_without_a_live_code(post_site: Site, clock: Clock) -> None:
    """Within the wait and with no code under way a right password is 429, and no session."""
    challenge, _ = first_half(post_site.browser())
    assert post_site.verify(challenge, newest(post_site)).status_code == 200
    clock.advance(1_000)
    browser = post_site.browser()
    refused = browser.post("/auth/login", json=RIGHT)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "59")
    assert "Set-Cookie" not in refused.headers
    assert not is_in(browser)
    clock.advance(59_000)
    assert first_half(browser)[0] != challenge


def test_a_code_that_never_went_out_is_not_under_way(post_site: Site, clock: Clock) -> None:
    """A79: where the provider failed the next start within the wait is 429, not a dead end."""
    post_site.outbox.failure = ConnectionError("provider")
    first_half(post_site.browser())
    post_site.messages()
    post_site.outbox.failure = None
    refused = post_site.login("tess", "right tess")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    clock.advance(60_000)
    challenge, _ = first_half(post_site.browser())
    assert post_site.verify(challenge, newest(post_site)).status_code == 200


@pytest.mark.parametrize("how", ["named", "same session"])
def test_a_resend_keeps_the_challenge(post_site: Site, clock: Clock, how: str) -> None:
    """A70, A63: whoever holds the challenge gets a new code for it; the old one is wrong."""
    browser = post_site.browser()
    challenge, _ = first_half(browser)
    old = newest(post_site)
    clock.advance(60_000)
    body = {"identifier": "tess", "channel": "sms"}
    if how == "named":
        answer = post_site.post("/auth/otp/send", json=body | {"challenge": challenge})
    else:
        answer = browser.post("/auth/otp/send", json=body)
    assert answer.status_code == 202
    assert answer.json == {"status": "sent", "challenge": challenge, "retry_after": 60}
    new = newest(post_site)
    assert len(new) == 6
    if old != new:  # one in a million
        assert enter(browser, challenge, old).status_code == 401
    assert enter(browser, challenge, new).status_code == 200


def test_a_resend_by_form(post_site: Site, clock: Clock) -> None:
    """The page for the code has the form for another one; it leads back to the same challenge."""
    browser = post_site.browser()
    browser.post("/auth/login", data=RIGHT)
    old = newest(post_site)
    clock.advance(60_000)
    answer = browser.post("/auth/otp/send", data={"identifier": "tess", "channel": "sms"})
    assert (answer.status_code, answer.location) == (303, "/auth/otp/verify")
    with browser.session_transaction() as session:
        challenge = session["authguard.pending"]["challenge"]
    assert [message.code for message in post_site.messages("code")][1:] == [old]
    form = {"challenge": challenge, "code": newest(post_site)}
    assert browser.post("/auth/otp/verify", data=form).status_code == 303
    assert is_in(browser)


def test_the_name_alone_sends_nothing(post_site: Site, clock: Clock) -> None:
    """A69: without the password an account with two factors is sent nothing, and no code opens."""
    answer = post_site.send_code("tess")
    assert answer.status_code == 202
    assert answer.json is not None
    assert post_site.messages() == []
    clock.advance(60_000)
    first_half(post_site.browser())
    code = newest(post_site)
    for typed in (code, f"00{code}", f"{code}00"):
        assert post_site.verify(answer.json["challenge"], typed).status_code == 401


@pytest.mark.parametrize("who", ["tess", "tess@example.test"])
def test_anothers_session_continues_nothing(post_site: Site, clock: Clock, who: str) -> None:
    """A69: a session or challenge of another account is no way to one's second factor."""
    omar = post_site.people.by_key["key-2"]
    omar.second_factor = True
    browser = post_site.browser()
    answer = browser.post("/auth/login", json={"identifier": "omar", "password": "right omar"})
    assert answer.json is not None
    his = answer.json["challenge"]
    for body in ({}, {"challenge": his}, {"challenge": "x" * 22}, {"challenge": "\u00e9"}):
        sent = browser.post("/auth/otp/send", json={"identifier": who, "channel": "sms", **body})
        assert sent.status_code == 202
        assert sent.json is not None
        assert sent.json["challenge"] != his
        clock.advance(60_000)
    assert {message.to for message in post_site.messages()} == {"+14155550102"}


def test_the_two_purposes_are_apart(post_site: Site) -> None:
    """A69: a code for one purpose is wrong on the other's challenge, of the same account, too."""
    vera = post_site.people.by_key["key-1"]
    alone = post_site.send_code("vera").json
    assert alone is not None
    sign_in_code = newest(post_site)
    vera.second_factor = True
    post_site.guard.clear("otp.send", account=AccountKey("key-1"))
    second = post_site.login("vera", "right vera").json
    assert second is not None
    code = newest(post_site)
    assert post_site.verify(second["challenge"], sign_in_code).status_code == 401
    assert post_site.verify(second["challenge"], sign_in_code[:6]).status_code == 401
    assert post_site.verify(alone["challenge"], code).status_code == 401
    assert post_site.verify(second["challenge"], code).status_code == 200


def test_the_password_clears_no_guesses(default_site: Site, clock: Clock) -> None:
    """A63, A64: the password, a resend, another address: ten wrong codes in a day, then none."""
    answers = []
    for number in range(3):
        browser = default_site.browser(f"198.51.{number}.1")
        challenge, _ = first_half(browser)
        code = newest(default_site)
        answers += [enter(browser, challenge, wrong(code)).status_code for _ in range(4)]
        clock.advance(240_000)
    assert answers == [401] * 10 + [429] * 2
    assert guesses(default_site) == 10
    # No code is sent that could not be entered, though the password is right.
    refused = default_site.login("tess", "right tess")
    assert refused.status_code == 429
    assert len(default_site.messages("code")) == 3


def test_parallel_starts(post_site: Site, volley: Volley) -> None:
    """A78: twenty right passwords at once send one code, whose challenge they all get."""
    challenges: list[str] = []

    def start(_: int) -> int:
        answer = post_site.login("tess", "right tess")
        if answer.status_code == 200 and answer.json is not None:
            challenges.append(answer.json["challenge"])
        return answer.status_code

    assert set(volley(20, start)) <= {200, 429}
    assert len(post_site.messages("code")) == 1
    assert len(set(challenges)) == 1
    assert post_site.verify(challenges[0], newest(post_site)).status_code == 200


def test_what_operators_hear(post_site: Site) -> None:
    """A right password and a wrong code is a signal of its own, with the account's pseudonym."""
    heard: list[dict[str, Any]] = []

    def listen(_app: object, **payload: Any) -> None:
        heard.append(payload)

    with signals.second_factor_failed.connected_to(listen):
        challenge, _ = first_half(post_site.browser())
        code = newest(post_site)
        post_site.verify(challenge, wrong(code))
        post_site.verify(challenge, code)
        alone = post_site.send_code("vera").json
        assert alone is not None
        post_site.verify(alone["challenge"], "1")
    subject = post_site.guard.subject(post_site.guard.account_key("tess"))
    assert heard == [{"action": "otp.verify", "subject": subject}]


def test_a_shut_second_factor(default_site: Site, clock: Clock) -> None:
    """A64: after thirty wrong codes the right password is 429, and nothing is sent any more."""
    tess = default_site.people.by_key["key-4"]
    for _ in range(3):
        for _ in range(2):
            challenge, _ = first_half(default_site.browser())
            code = newest(default_site)
            for _ in range(5):
                assert default_site.verify(challenge, wrong(code)).status_code == 401
            clock.advance(240_000)
        clock.advance(DAY_MS)
    assert tess.recovery_required == {"otp.verify"}
    sent = len(default_site.messages("code"))
    clock.advance(31 * DAY_MS)
    refused = default_site.login("tess", "right tess")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "900")
    assert len(default_site.messages("code")) == sent


def test_the_name_alone_is_no_weapon(default_site: Site, clock: Clock) -> None:
    """A54: who knows only the name can't use up the owner's tries of the second factor."""
    for number in range(2):
        answer = default_site.send_code("tess", client=f"198.51.{number}.1").json
        assert answer is not None
        for _ in range(5):
            default_site.verify(answer["challenge"], "12345678", client=f"198.51.{number}.1")
        clock.advance(240_000)
    browser = default_site.browser()
    challenge, _ = first_half(browser)
    assert enter(browser, challenge, newest(default_site)).status_code == 200


def test_the_name_alone_delays_no_code(default_site: Site) -> None:
    """B104: a code asked for by the name alone doesn't delay the one after the password."""
    assert default_site.send_code("tess").status_code == 202
    first_half(default_site.browser())
    assert len(default_site.messages("code")) == 1
