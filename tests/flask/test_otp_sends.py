"""Asking for codes: waits, quotas and answers that are the same whoever has an account."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from freezegun import freeze_time

from authguard._outgoing import Outgoing
from authguard.flask import signals

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey
    from werkzeug.test import TestResponse

    from authguard.notify import Message
    from authguard.one_time import Holder
    from authguard.testing import EmbeddedValkey
    from tests.conftest import Clock
    from tests.flask.conftest import Site

    Volley = Callable[[int, Callable[[int], int]], list[int]]

HOUR_MS = 3_600_000

#: A known account, nobody's name, a disabled account, one whose password comes first, and one
#: without a phone.
NAMES = ["vera", "ghost", "dora", "tess", "nora"]


def face(answer: TestResponse, *own: str) -> tuple[int, str, list[tuple[str, str]]]:
    """Give all that a client sees of an answer, but for the name it typed and random ids."""
    text = answer.text
    for each in own:
        text = text.replace(each, "OWN")
    # What a form's session keeps is random; that there is such a cookie is not.
    headers = [
        (key, re.sub(r"=[^;]*;", "=…;", value, count=1) if key == "Set-Cookie" else value)
        for key, value in answer.headers
        if key != "Content-Length"
    ]
    return answer.status_code, text, headers


def challenge_of(answer: TestResponse) -> str:
    """Give the challenge of an answer, if it is one that has any."""
    return str((answer.json or {}).get("challenge", ""))


def wrong(code: str | None) -> str:
    """Give another code of the same length."""
    return f"{(int(code or '12345678') + 1) % 10**8:08}"


def outgoing_of(site: Site) -> Outgoing:
    """Give what runs a site's jobs after its answers."""
    state: Any = site.state
    outgoing = state.messaging.outbound._outgoing
    assert isinstance(outgoing, Outgoing)
    return outgoing


def hold_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Keep what would run after the answers; nothing of it runs."""
    held: list[Callable[[], None]] = []

    def keep(job: Callable[[], None], *, spare: bool = False) -> bool:
        held.append(job)
        return True

    monkeypatch.setattr(outgoing_of(site), "put", keep)
    return held


def usage(site: Site, account: str = "vera") -> dict[str, int]:
    """Tell how many places of each limit on sends are taken."""
    key = site.guard.account_key(account)
    standing = site.guard.usage("otp.send", account=key, client=site.home)
    return {each.name: each.used for each in standing if each.name != "block"}


def test_every_send_waits_longer(default_site: Site, clock: Clock) -> None:
    """The n-th code in a row starts the n-th wait, and the answer says what a 429 would say."""
    waits = []
    for _ in range(5):
        sent = default_site.send_code()
        assert (sent.status_code, sent.json is not None) == (202, True)
        assert sent.json is not None
        refused = default_site.send_code()
        assert refused.status_code == 429
        assert refused.json is not None
        told = sent.json["retry_after"]
        assert told == int(refused.headers["Retry-After"]) == refused.json["retry_after"]
        waits.append(told)
        clock.advance(told * 1000 - 1)
        assert default_site.send_code().headers["Retry-After"] == "1"
        clock.advance(1)
    # After five within the hour it is the hour's quota that waits.
    assert waits == [30, 60, 120, 240, 3600 - 30 - 60 - 120 - 240]
    assert len(default_site.messages("code")) == 5


def test_ten_codes_a_day(default_site: Site, clock: Clock) -> None:
    """Ten codes go to an account in any 24 hours; the answer to the tenth says how long."""
    sent = None
    for number in range(10):
        sent = default_site.send_code(client=f"198.51.{number}.1")
        assert sent.status_code == 202
        clock.advance(HOUR_MS)
    assert sent is not None
    assert sent.json is not None
    assert sent.json["retry_after"] == 15 * 3600
    refused = default_site.send_code(client="192.0.2.1")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, str(14 * 3600))


def test_all_names_of_an_account_share_its_wait(post_site: Site) -> None:
    """Username, address and letter case are one account: the second code within a minute is 429."""
    assert post_site.send_code("vera").status_code == 202
    for name in ("VERA", "vera@example.test", " Vera@Example.test "):
        assert post_site.send_code(name, "email", client="198.51.100.7").status_code == 429


def test_the_clients_own_limit(default_site: Site, clock: Clock) -> None:
    """Ten codes an hour are asked for from one client, for whomever; then it is told how long."""
    answers = [default_site.send_code(f"user-{number}") for number in range(11)]
    assert [answer.status_code for answer in answers] == [202] * 10 + [429]
    assert answers[9].json is not None
    assert answers[9].json["retry_after"] == 3600 == int(answers[10].headers["Retry-After"])
    assert default_site.send_code("user-10", client="198.51.100.7").status_code == 202


def test_twenty_sends_at_once(default_site: Site, volley: Volley, clock: Clock) -> None:
    """A78: of twenty that ask at once one is sent a code, within each wait."""
    for number in range(3):
        client = f"198.51.{number}.1"
        ask = partial(lambda at, _: default_site.send_code(client=at).status_code, client)
        assert Counter(volley(20, ask)) == {202: 1, 429: 19}
        assert len(default_site.messages("code")) == number + 1
        clock.advance(240_000)


def test_a_refused_send_changes_nothing(post_site: Site, clock: Clock) -> None:
    """A refused send is no send: no message, no place taken, and the code before still works."""
    sent = post_site.send_code()
    before = usage(post_site)
    clock.advance(30_000)
    for _ in range(5):
        assert post_site.send_code(challenge=challenge_of(sent)).status_code == 429
    assert usage(post_site) == before
    (message,) = post_site.messages("code")
    assert message.code is not None
    assert post_site.verify(challenge_of(sent), message.code).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"identifier": "vera"},
        {"channel": "sms"},
        {"identifier": "", "channel": "sms"},
        {"identifier": "vera\0", "channel": "sms"},
        {"identifier": "x" * 255, "channel": "sms"},
        {"identifier": ["vera"], "channel": "sms"},
        {"identifier": "vera", "channel": "post"},
        {"identifier": "vera", "channel": "SMS"},
        {"identifier": "vera", "channel": ["sms", "email"]},
        {"identifier": "vera", "channel": "sms", "challenge": 5},
        {"identifier": "vera", "channel": "sms", "challenge": ["x"]},
    ],
)
def test_what_cant_be_sent(post_site: Site, body: dict[str, Any]) -> None:
    """B099, A76: a malformed request is 400 and its client's alone; no code, no wait, no quota."""
    assert post_site.post("/auth/otp/send", json=body).status_code == 400
    assert usage(post_site) == {"cooldown": 0, "quota": 0, "client": 1}
    assert post_site.send_code().status_code == 202
    assert len(post_site.messages("code")) == 1


def test_a_channel_that_is_not_offered(site_factory: Callable[..., Site]) -> None:
    """Codes go by the channels that the app has named, and by no other."""
    site = site_factory(messages={"channels": ("sms",)})
    assert site.send_code("vera", "email").status_code == 400
    assert site.send_code("vera", "sms").status_code == 202
    assert [message.channel for message in site.messages()] == ["sms"]


@pytest.mark.parametrize("channel", ["sms", "email"])
def test_every_answer_looks_the_same(post_site: Site, clock: Clock, channel: str) -> None:
    """B082, B076: send, wrong codes to the lock, and sends after it: one transcript for all."""
    transcripts = []
    for number, name in enumerate(NAMES):
        client = f"198.51.100.{number}"
        answers = [post_site.send_code(name, channel, client=client) for _ in range(2)]
        challenge = challenge_of(answers[0])
        answers += [post_site.verify(challenge, wrong(None), client=client) for _ in range(2)]
        clock.advance(60_000)
        answers.append(post_site.send_code(name, channel, client=client, challenge=challenge))
        assert challenge_of(answers[-1]) == challenge
        answers += [post_site.verify(challenge, wrong(None), client=client) for _ in range(5)]
        answers.append(post_site.send_code(name, channel, client=client))
        clock.advance(900_000)
        answers.append(post_site.send_code(name, channel, client=client))
        own = (name, *filter(None, map(challenge_of, answers)))
        transcripts.append([face(answer, *own) for answer in answers])
    assert all(each == transcripts[0] for each in transcripts[1:])
    statuses = [status for status, _, _ in transcripts[0]]
    assert statuses == [202, 429, 401, 401, 202, 401, 401, 401, 429, 429, 429, 202]
    # To a known name both codes went out, and to the others none.
    sent = {"sms": ["vera"] * 3, "email": ["nora"] * 3 + ["vera"] * 3}[channel]
    assert len(post_site.messages("code")) == len(sent)


@freeze_time("2027-01-15")  # the pages count seconds down by the app's clock
def test_every_page_looks_the_same(post_site: Site, clock: Clock) -> None:
    """B082: the same with forms: equal pages, redirects and cookies for every name."""
    transcripts = []
    for number, name in enumerate(NAMES):
        browser = post_site.browser(f"198.51.100.{number}")
        form = {"identifier": name, "channel": "sms"}
        answers = [browser.post("/auth/otp/send", data=form) for _ in range(2)]
        with browser.session_transaction() as session:
            challenge = session["authguard.pending"]["challenge"]
        answers.append(browser.get("/auth/otp/verify"))
        body = {"challenge": challenge, "code": wrong(None)}
        answers += [browser.post("/auth/otp/verify", data=body) for _ in range(6)]
        transcripts.append([face(answer, name, challenge) for answer in answers])
    assert all(each == transcripts[0] for each in transcripts[1:])
    assert [status for status, _, _ in transcripts[0]] == [303, 429, 200] + [401] * 5 + [429]


def test_the_default_profile_tells_nobody(default_site: Site, clock: Clock) -> None:
    """B082, B077: ten wrong codes in a day end in equal answers, for known and unknown names."""
    transcripts = []
    for number, name in enumerate(NAMES):
        client, answers = f"198.51.{number}.1", []
        for _ in range(2):
            answers.append(default_site.send_code(name, client=client))
            challenge = challenge_of(answers[-1])
            answers += [default_site.verify(challenge, wrong(None), client=client) for _ in "12345"]
            clock.advance(240_000)
        answers.append(default_site.send_code(name, client=client))
        answers.append(default_site.verify(challenge, wrong(None), client=client))
        own = [name, *filter(None, map(challenge_of, answers))]
        transcripts.append([face(answer, *own) for answer in answers])
    assert all(each == transcripts[0] for each in transcripts[1:])
    statuses = [status for status, _, _ in transcripts[0]]
    assert statuses == [202, *[401] * 5, 202, *[401] * 5, 429, 429]


@pytest.mark.parametrize("account", ["vera", "dora"])
def test_every_request_costs_the_store_as_much(
    default_site: Site,
    client: valkey.Valkey,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    account: str,
) -> None:
    """B082: send, resend, wrong codes: as many commands at the store whether or not one is sent."""
    # What runs after the answer is held back, so that the requests alone are counted.
    held = hold_back(default_site, monkeypatch)

    def commands(name: str, address: str) -> list[dict[str, int]]:
        counts = []

        def count(answer: TestResponse) -> TestResponse:
            stats: Any = client.info("commandstats")
            client.config_resetstat()
            counts.append({verb: each["calls"] for verb, each in stats.items()})
            return answer

        client.config_resetstat()
        sent = count(default_site.send_code(name, client=address))
        count(default_site.send_code(name, client=address))
        count(default_site.verify(challenge_of(sent), wrong(None), client=address))
        count(default_site.verify(challenge_of(sent), "no code", client=address))
        clock.advance(30_000)
        again = count(default_site.send_code(name, client=address, challenge=challenge_of(sent)))
        assert challenge_of(again) == challenge_of(sent)
        for _ in range(5):
            count(default_site.verify(challenge_of(sent), wrong(None), client=address))
        clock.advance(60_000)
        count(default_site.send_code(name, client=address))
        return counts

    commands("warm", "192.0.2.1")  # the scripts are known to the server from here on
    assert commands(account, "198.51.100.1") == commands("ghost", "198.51.101.1")
    assert len(held) == 9  # three each: nobody's sends put something aside as well


def test_a_provider_that_fails(post_site: Site, clock: Clock) -> None:
    """A79, B099: who fails to send is asked once; wait and quota stay, and the code is void."""
    lost: list[Message] = []
    failed: list[dict[str, Any]] = []

    def lose(message: Message) -> None:
        lost.append(message)
        raise TimeoutError(message.to)

    def listen(_app: object, **payload: Any) -> None:
        failed.append(payload)

    post_site.outbox.send = lose  # type: ignore[method-assign]
    with signals.send_failed.connected_to(listen):
        sent = post_site.send_code()
        assert sent.status_code == 202
        assert post_site.messages() == []
    assert failed == [{"action": "otp.send", "reason": "TimeoutError"}]
    assert usage(post_site)["quota"] == 1
    (message,) = lost
    assert message.code is not None
    assert post_site.verify(challenge_of(sent), message.code).status_code == 401
    refused = post_site.send_code()
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    clock.advance(60_000)
    assert post_site.send_code().status_code == 202
    post_site.messages()
    assert len(lost) == 2
    assert usage(post_site)["quota"] == 2


@pytest.mark.parametrize("phone", ["+4740000001", "not a number", "+14155550101"])
def test_what_became_of_a_code_is_not_told(post_site: Site, clock: Clock, phone: str) -> None:
    """B082, A81: a resend looks the same where the code before it was withheld, lost or sent."""
    post_site.people.by_key["key-1"].phone = phone

    def lose(message: Message) -> None:
        raise ConnectionError

    post_site.outbox.send = lose  # type: ignore[method-assign]
    goes_on = []
    for name in ("vera", "ghost"):
        first = challenge_of(post_site.send_code(name))
        post_site.messages()
        clock.advance(60_000)
        goes_on.append(challenge_of(post_site.send_code(name, challenge=first)) == first)
        post_site.messages()
    assert goes_on[0] == goes_on[1]


def test_the_store_is_away(own_valkey: EmbeddedValkey, site_factory: Callable[..., Site]) -> None:
    """With the store down sends and checks are 503 alike for all, and nothing is sent."""
    site = site_factory(
        messages={}, AUTHGUARD_STORE_URL=own_valkey.url, AUTHGUARD_DEADLINE_MS=2_000
    )
    sent = site.send_code()
    (message,) = site.messages("code")
    os.kill(own_valkey.pid, signal.SIGKILL)
    assert message.code is not None
    answers = [site.send_code(name) for name in ("omar", "ghost")]
    answers += [site.verify(challenge_of(sent), message.code), site.verify("x" * 22, "1" * 8)]
    answers.append(site.login("tess", "right tess"))
    for answer in answers:
        assert answer.status_code == 503
        assert answer.json is not None
        assert answer.json["title"] == "Service Unavailable"
        assert int(answer.headers["Retry-After"]) >= 5
        assert "Set-Cookie" not in answer.headers
    assert len(site.messages()) == 1


def test_the_store_goes_after_the_answer(
    own_valkey: EmbeddedValkey,
    site_factory: Callable[..., Site],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the store goes between the answer and the message, the message is not sent."""
    site = site_factory(
        messages={}, AUTHGUARD_STORE_URL=own_valkey.url, AUTHGUARD_DEADLINE_MS=2_000
    )
    with monkeypatch.context() as patched:
        held = hold_back(site, patched)
        assert site.send_code().status_code == 202
    os.kill(own_valkey.pid, signal.SIGKILL)
    (job,) = held
    outgoing_of(site).put(job)
    assert site.messages() == []
    assert site.outbox.tries == 0


def test_a_code_that_was_not_sent_is_not_live(
    post_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A79, A81: the code of a message that was withheld is void: it can't be entered."""
    issued: list[tuple[str, str]] = []
    one_time = post_site.guard.one_time
    issue = one_time.issue_code

    def spy(holder: Holder, **how: Any) -> tuple[str, str]:
        issued.append(issue(holder, **how))
        return issued[-1]

    monkeypatch.setattr(one_time, "issue_code", spy)
    post_site.people.by_key["key-1"].phone = "+4740000001"
    assert post_site.send_code().status_code == 202
    assert post_site.messages("code") == []
    ((challenge, code),) = issued
    assert post_site.verify(challenge, code).status_code == 401
