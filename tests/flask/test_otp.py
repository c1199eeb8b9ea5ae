"""Signing in by code: one live code, compared as often as the limits say, taken once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from freezegun import freeze_time

from authguard.flask import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

    Volley = Callable[[int, Callable[[int], int]], list[int]]

DAY_MS = 86_400_000
ELSEWHERE = "198.51.100.7"


def ask(site: Site, who: str = "vera", **how: Any) -> tuple[str, str]:
    """Have a code sent; give its challenge, and the code if one went out."""
    before = len(site.messages("code"))
    answer = site.send_code(who, **how)
    assert answer.status_code == 202
    assert answer.json is not None
    messages = site.messages("code")
    code = messages[0].code if len(messages) > before else None
    return answer.json["challenge"], code or ""


def wrong(code: str) -> str:
    """Give another code of the same length."""
    return f"{(int(code or '12345678') + 1) % 10**8:08}"


def used(site: Site, by: str = "account", *, account: str = "key-1", client: str = "") -> int:
    """Tell how many places of the limits on codes are taken."""
    key = site.guard.account_key(account) if account == "ghost" else account
    verdicts = site.guard.peek("otp.verify", account=key, client=client or site.home).verdicts
    verdict = next(verdict for verdict in verdicts if verdict.name == by)
    return int(verdict.limit - verdict.remaining)


@pytest.fixture
def compared(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Write down every code that is compared with a live one."""
    site: Site = request.getfixturevalue("post_site")
    codes: list[str] = []
    take = site.guard.one_time.take_code

    def spy(holder: Any, challenge: str, code: str) -> bool:
        codes.append(code)
        return bool(take(holder, challenge, code))

    site.guard.one_time.take_code = spy
    yield codes
    del site.guard.one_time.take_code


def test_sign_in_by_code(post_site: Site) -> None:
    """A85: eight digits alone sign in, and what the right code had reserved is given back."""
    challenge, code = ask(post_site)
    assert (len(code), code.isascii(), code.isdecimal()) == (8, True, True)
    browser = post_site.browser()
    answer = browser.post("/auth/otp/verify", json={"challenge": challenge, "code": code})
    assert (answer.status_code, answer.json) == (200, {"status": "authenticated"})
    assert browser.get("/auth/me", headers={"Accept": "application/json"}).json == {
        "username": "vera"
    }
    assert (used(post_site), used(post_site, "client")) == (0, 0)


def test_by_mail_and_by_text(post_site: Site, clock: Clock) -> None:
    """The code goes the way that was asked for, to the stored address, with its life."""
    ask(post_site, channel="sms")
    clock.advance(60_000)
    ask(post_site, channel="email")
    mail, text = post_site.messages("code")
    assert (mail.channel, mail.to, text.channel, text.to) == (
        "email",
        "vera@example.test",
        "sms",
        "+14155550101",
    )
    for message in (mail, text):
        assert message.code is not None
        assert message.body.count(message.code) in (1, 2)
        assert "5 minutes" in message.body
    assert text.body.endswith(f"@app.example #{text.code}")


@pytest.mark.parametrize(
    "typed",
    [
        "{fullwidth}",
        "{arabic}",
        "{superscript}",
        "+{code}",
        "-{code}",
        "{code}.0",
        "{code}e0",
        "0x{code}",
        "{code}0",
        "0{code}",
        "{seven}",
        "{six}",
        "{five}",
        "{half} {rest}",
        "{half}-{rest}",
        "{half}_{rest}",
        "{half}\u00a0{rest}",
        "{code}\n",
        "\t{code}",
        "{code}\0",
        "\u200b{code}",
        "{code}\u00a0",
        "{code}{code}",
        "abcdefgh",
        " ",
        "9" * 5000,
    ],
)
def test_what_is_no_code(post_site: Site, compared: list[str], typed: str) -> None:
    """Only ASCII digits of the right number are a code; all else is 401, counted, not compared."""
    challenge, code = ask(post_site)
    text = typed.format(
        code=code,
        fullwidth=code.translate({48 + n: 0xFF10 + n for n in range(10)}),
        arabic=code.translate({48 + n: 0x0660 + n for n in range(10)}),
        superscript=code.translate({48 + n: "\u2070\u00b9\u00b2\u00b3"[n % 4] for n in range(10)}),
        seven=code[:7],
        six=code[:6],
        five=code[:5],
        half=code[:4],
        rest=code[4:],
    )
    refused, ordinary = post_site.verify(challenge, text), post_site.verify(challenge, wrong(code))
    assert (refused.status_code, refused.data) == (401, ordinary.data)
    assert (used(post_site), used(post_site, "client")) == (2, 2)
    assert compared == [wrong(code)]
    assert post_site.verify(challenge, f"  {code} ").status_code == 200  # as it is copied


@pytest.mark.parametrize(
    "body",
    [
        {"code": "12345678"},
        {"challenge": "{challenge}"},
        {"challenge": "{challenge}", "code": ""},
        {"challenge": "{challenge}", "code": 12345678},
        {"challenge": "{challenge}", "code": ["12345678"]},
        {"challenge": "{challenge}", "code": None},
        {"challenge": ["{challenge}"], "code": "12345678"},
        {"challenge": "{challenge}", "code": "\ud800"},
    ],
)
def test_malformed_answers(post_site: Site, compared: list[str], body: dict[str, Any]) -> None:
    """What is no text in both fields is 400 and its client's alone; nothing is compared."""
    challenge, code = ask(post_site)
    filled = {key: challenge if value == "{challenge}" else value for key, value in body.items()}
    assert post_site.post("/auth/otp/verify", json=filled).status_code == 400
    assert (used(post_site), used(post_site, "client"), compared) == (0, 1, [])
    assert post_site.verify(challenge, code).status_code == 200


def test_twenty_right_answers_at_once(post_site: Site, volley: Volley, clock: Clock) -> None:
    """B083, A67: of twenty right answers at once exactly one signs in; twenty rounds."""
    for _ in range(20):
        challenge, code = ask(post_site)
        answers = volley(20, lambda _, it=(challenge, code): post_site.verify(*it).status_code)  # type: ignore[misc]
        assert answers.count(200) == 1
        assert set(answers) <= {200, 401, 429}
        clock.advance(DAY_MS)


def test_a_hundred_guesses_at_once(post_site: Site, compared: list[str], volley: Volley) -> None:
    """A66: of a hundred codes at once on one challenge exactly five are compared."""
    challenge, code = ask(post_site)

    def guess(number: int) -> int:
        typed = f"{(int(code) + 1 + number) % 10**8:08}"
        return post_site.verify(challenge, typed, client=f"198.51.100.{number}").status_code

    assert Counter(volley(100, guess)) == {401: 5, 429: 95}
    assert len(compared) == 5


def test_guesses_at_once_on_the_default_profile(default_site: Site, volley: Volley) -> None:
    """A66: a challenge of the default profile takes five guesses, wherever they come from."""
    challenge, code = ask(default_site)

    def guess(number: int) -> int:
        client = f"198.51.{number}.1"
        return default_site.verify(challenge, wrong(code), client=client).status_code

    assert Counter(volley(50, guess)) == {401: 5, 429: 45}


def test_a_used_code(post_site: Site) -> None:
    """A67: the right code a second time, from a second browser, is 401 and counted."""
    challenge, code = ask(post_site)
    assert post_site.verify(challenge, code).status_code == 200
    again = post_site.verify(challenge, code, client=ELSEWHERE)
    assert (again.status_code, "Set-Cookie" in again.headers) == (401, False)
    assert used(post_site) == 1


@pytest.mark.parametrize("how", ["named", "not named"])
def test_the_code_before(post_site: Site, clock: Clock, how: str) -> None:
    """A70: after a resend the code before is wrong and counted; the newest is right."""
    first, old = ask(post_site)
    clock.advance(60_000)
    second, new = ask(post_site, **({"challenge": first} if how == "named" else {}))
    assert (second == first) is (how == "named")
    assert old != new  # one in a hundred million
    assert post_site.verify(first, old).status_code == 401
    assert used(post_site) == 1
    assert post_site.verify(second, new).status_code == 200


@pytest.mark.parametrize(("age_ms", "status"), [(299_999, 200), (300_000, 401)])
def test_the_end_of_a_code(post_site: Site, clock: Clock, age_ms: int, status: int) -> None:
    """A71: a code is right until its five minutes are over, to the millisecond."""
    challenge, code = ask(post_site)
    clock.advance(age_ms)
    assert post_site.verify(challenge, code).status_code == status


@pytest.mark.parametrize("when", ["1999-12-31", "2100-01-01"])
def test_the_stores_clock_counts(site_factory: Callable[..., Site], when: str) -> None:
    """A71: however wrong the app's own clock is, a code lives by the store's."""
    site = site_factory(messages={})
    challenge, code = ask(site)
    with freeze_time(when):
        assert site.verify(challenge, wrong(code)).status_code == 401
        assert site.verify(challenge, code).status_code == 200


def test_the_right_code_once_limited(site_factory: Callable[..., Site], clock: Clock) -> None:
    """A73: at the limit the right code is 429 like a wrong one: no session, and it is not used."""
    limits = [
        {"name": "account", "by": ["account"], "sliding_log": "3/60s"},
        {"name": "client", "by": ["client"], "sliding_log": "20/60s"},
    ]
    policy = {"otp.verify": {"limits": limits}}
    site = site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=policy)
    challenge, code = ask(site)
    assert [site.verify(challenge, wrong(code)).status_code for _ in range(3)] == [401] * 3
    bad, good = site.verify(challenge, wrong(code)), site.verify(challenge, code)
    assert (good.status_code, good.data, good.headers) == (429, bad.data, bad.headers)
    assert "Set-Cookie" not in good.headers
    clock.advance(59_999)
    assert site.verify(challenge, code).status_code == 429
    clock.advance(1)
    assert site.verify(challenge, code).status_code == 200


def test_resends_refill_nothing(default_site: Site, clock: Clock) -> None:
    """A63: four wrong codes and a new one, again and again: the eleventh guess in a day is 429."""
    answers = []
    for number in range(3):
        challenge, code = ask(default_site, client=f"198.51.{number}.1")
        for _ in range(4):
            answers.append(default_site.verify(challenge, wrong(code)).status_code)  # noqa: PERF401
        clock.advance(240_000)
    assert answers == [401] * 10 + [429] * 2
    # No code that could not be entered is sent, and the wait for it is the honest one.
    refused = default_site.send_code()
    assert refused.status_code == 429
    clock.advance(int(refused.headers["Retry-After"]) * 1000)
    assert ask(default_site, client=ELSEWHERE)[1]


def test_five_guesses_end_a_challenge(default_site: Site, clock: Clock) -> None:
    """A63: five wrong codes end a challenge, also across resends; then a new one begins."""
    challenge, code = ask(default_site)
    assert [default_site.verify(challenge, wrong(code)).status_code for _ in range(4)] == [401] * 4
    clock.advance(30_000)
    again, code = ask(default_site, challenge=challenge)
    assert again == challenge
    assert default_site.verify(challenge, wrong(code)).status_code == 401
    assert default_site.verify(challenge, code).status_code == 429
    clock.advance(60_000)
    other, code = ask(default_site, challenge=challenge)
    assert other != challenge
    assert default_site.verify(other, code).status_code == 200


def test_new_challenges_are_no_fresh_tries(default_site: Site, clock: Clock) -> None:
    """A64: guesses add up by account over challenges, browsers, names and addresses."""
    answers = []
    for number in range(11):
        if number % 3 == 0:
            who = ("vera", "VERA@example.test")[number % 2]
            challenge, code = ask(default_site, who, client=f"192.0.{number}.1")
            clock.advance(240_000)
        client = f"198.51.{number}.1"
        answers.append(default_site.verify(challenge, wrong(code), client=client).status_code)
    assert answers == [401] * 10 + [429]
    assert default_site.login("vera", "right vera").status_code == 200  # another action's


def test_thirty_wrong_codes_shut_the_account(
    default_site: Site, clock: Clock, valkey_url: str
) -> None:
    """A64: thirty wrong codes in thirty days, ten a day: no code works until it is recovered."""
    told: list[dict[str, Any]] = []

    def listen(_app: object, **payload: Any) -> None:
        told.append(payload)

    vera = default_site.people.by_key["key-1"]
    with signals.recovery_required.connected_to(listen):
        for _ in range(3):
            for _ in range(2):
                challenge, code = ask(default_site)
                for _ in range(5):
                    assert vera.recovery_required == set()
                    assert default_site.verify(challenge, wrong(code)).status_code == 401
                clock.advance(240_000)
            clock.advance(DAY_MS)
        assert vera.recovery_required == {"otp.verify"}
        for days in (0, 31):
            clock.advance(days * DAY_MS)
            refused = default_site.send_code(client=ELSEWHERE)
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "900")
    subject = default_site.guard.subject(default_site.guard.account_key("vera"))
    assert told == [{"action": "otp.verify", "subject": subject}]
    assert [message.to for message in default_site.messages("notice")] == ["vera@example.test"]
    assert len(default_site.messages("code")) == 6
    assert default_site.login("vera", "right vera").status_code == 200
    default_site.people.lift_recovery("key-1", "otp.verify")
    assert ask(default_site, client=ELSEWHERE)[1]


def test_a_shut_account_looks_like_any_other(default_site: Site, clock: Clock) -> None:
    """A64, B082: thirty wrong codes for a name that nobody has end in the same answers."""
    faces: dict[str, list[object]] = {}
    for who in ("vera", "ghost"):
        faces[who] = []
        for day in range(3):
            for _ in range(2):
                challenge, code = ask(default_site, who, client=f"198.51.{day}.1")
                faces[who] += [
                    (answer.status_code, answer.data)
                    for answer in (default_site.verify(challenge, wrong(code)) for _ in range(5))
                ]
                clock.advance(240_000)
            clock.advance(DAY_MS)
        for answer in (
            default_site.send_code(who, client=ELSEWHERE),
            default_site.verify(challenge, "12345678", client=ELSEWHERE),
        ):
            faces[who].append((answer.status_code, answer.data, list(answer.headers)))
    assert faces["vera"] == faces["ghost"]


def test_a_code_under_way_when_the_account_is_shut(post_site: Site) -> None:
    """A64, A73: once the account is shut the right code is 429, and is not used up by that."""
    challenge, code = ask(post_site)
    post_site.people.require_recovery("key-1", "otp.verify")
    refused = post_site.verify(challenge, code)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "900")
    assert "Set-Cookie" not in refused.headers
    assert used(post_site) == 0
    post_site.people.lift_recovery("key-1", "otp.verify")
    assert post_site.verify(challenge, code).status_code == 200


def test_anothers_code(post_site: Site) -> None:
    """A69: a code is right on its own challenge alone, and wrong ones are the challenge's."""
    hers, code = ask(post_site, "vera")
    his, other = ask(post_site, "omar")
    assert post_site.verify(hers, other).status_code == 401
    assert (used(post_site), used(post_site, account="key-2")) == (1, 0)
    body = {"challenge": his, "code": other, "identifier": "vera", "user": "vera", "account": "1"}
    browser = post_site.browser()
    assert browser.post("/auth/otp/verify", json=body).status_code == 200
    answer = browser.get("/auth/me", headers={"Accept": "application/json"})
    assert answer.json == {"username": "omar"}
    assert post_site.verify(hers, code).status_code == 200


def test_another_channels_code(post_site: Site, clock: Clock) -> None:
    """A69: the code that was mailed is wrong on the challenge of the text message before."""
    by_text, _ = ask(post_site, channel="sms")
    clock.advance(60_000)
    by_mail, code = ask(post_site, channel="email")
    assert post_site.verify(by_text, code).status_code == 401
    assert post_site.verify(by_mail, code).status_code == 200


def test_another_purposes_code(post_site: Site) -> None:
    """A69: neither code nor challenge opens a reset or a lock, and no link's token a challenge."""
    challenge, code = ask(post_site)
    for token in (code, challenge):
        for path in ("/auth/password/reset", "/auth/unlock"):
            body = {"token": token, "password": "a new password"}
            assert post_site.post(path, json=body).status_code == 400
    post_site.post("/auth/password/forgot", json={"identifier": "vera"})
    link = post_site.messages("reset")[0].token or ""
    assert link
    for number in (code, "1" * 8):
        assert post_site.verify(link, number).status_code == 401
    assert used(post_site) == 0
    assert post_site.verify(challenge, code).status_code == 200


def test_an_unknown_challenge(post_site: Site) -> None:
    """A challenge that is nobody's is 401 and counts for its client alone, who is stopped."""
    challenge, code = ask(post_site)
    known = post_site.verify(challenge, wrong(code), client=ELSEWHERE)
    answers = [post_site.verify("x" * 22, code) for _ in range(21)]
    assert [answer.status_code for answer in answers] == [401] * 20 + [429]
    assert {answer.data for answer in answers[:20]} == {known.data}
    assert (used(post_site), used(post_site, "client")) == (1, 20)
    assert post_site.verify(challenge, code, client=ELSEWHERE).status_code == 200


def test_spraying_codes(default_site: Site) -> None:
    """A85: one guess at each of many accounts is twenty from one client in a quarter of an hour."""
    answers = []
    for number in range(25):
        challenge, _ = ask(default_site, f"user-{number}", client=f"192.0.{number}.1")
        answers.append(default_site.verify(challenge, "12345678").status_code)
    assert answers == [401] * 20 + [429] * 5


def test_an_account_that_was_shut_meanwhile(post_site: Site) -> None:
    """The right code of an account that was disabled, or is gone, is 401."""
    challenge, code = ask(post_site)
    post_site.people.by_key["key-1"].active = False
    assert post_site.verify(challenge, code).status_code == 401
    challenge, code = ask(post_site, "omar")
    del post_site.people.by_key["key-2"]
    assert post_site.verify(challenge, code).status_code == 401


def test_a_second_factor_that_was_switched_on_meanwhile(post_site: Site) -> None:
    """A code that was to be the only proof is none once the account asks for two."""
    challenge, code = ask(post_site)
    post_site.people.by_key["key-1"].second_factor = True
    assert post_site.verify(challenge, code).status_code == 401


def test_the_session_is_a_fresh_one(post_site: Site) -> None:
    """A61: what was in the browser's session before the code is not in the one after it."""
    challenge, code = ask(post_site)
    browser = post_site.browser()
    with browser.session_transaction() as session:
        session["planted"] = "by somebody else"
    browser.post("/auth/otp/verify", json={"challenge": challenge, "code": code})
    with browser.session_transaction() as session:
        assert "planted" not in session
        assert session["authguard.account"] == "key-1"


def page(answer: TestResponse) -> str:
    """Give the page that an answer is."""
    assert answer.mimetype == "text/html"
    return answer.text


def test_by_form(post_site: Site) -> None:
    """The same with forms: the code's page knows its challenge, and says when a code is wrong."""
    browser = post_site.browser()
    assert 'name="identifier"' in page(browser.get("/auth/otp/send"))
    sent = browser.post("/auth/otp/send", data={"identifier": "vera", "channel": "sms"})
    assert (sent.status_code, sent.location) == (303, "/auth/otp/verify")
    shown = page(browser.get("/auth/otp/verify"))
    code = post_site.messages("code")[0].code or ""
    challenge = shown.partition('name="challenge" value="')[2][:22]
    answers = [
        browser.post("/auth/otp/verify", data={"challenge": challenge, "code": typed})
        for typed in (wrong(code), code)
    ]
    assert [answer.status_code for answer in answers] == [401, 303]
    assert "wrong or too old" in page(answers[0])
    assert challenge in page(answers[0])
    assert browser.get("/auth/me").status_code == 200


def test_a_page_without_a_code_on_its_way(post_site: Site) -> None:
    """Who comes to the code's page without having asked for one is sent to where to ask."""
    answer = post_site.browser().get("/auth/otp/verify")
    assert (answer.status_code, answer.location) == (303, "/auth/otp/send")
