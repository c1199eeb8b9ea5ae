"""Waits between messages: cases of the kind cooldown."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask

from authguard.flask import AuthGuard
from tests.flask.conftest import ALL_OF_S, MESSAGES, SECRET, Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock

ELSEWHERE = "198.51.100.7"
BEGIN_MS = 1_800_000_000_000


@pytest.fixture
def post_site(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site on set-up S, where a code lives ten minutes."""
    return site_factory(clock=clock, messages={"code_life_s": 600}, AUTHGUARD_POLICY=ALL_OF_S)


def quota(site: Site, who: str = "vera") -> int:
    """Tell how many of the account's sends are counted."""
    standing = site.guard.usage("otp.send", account=site.guard.account_key(who))
    return sum(each.used for each in standing if each.name == "quota")


def test_all_routes_share_one_wait(post_site: Site, clock: Clock) -> None:
    """B098: a resend and a sign-in in turn, ten times in five seconds: one message."""
    challenge = ""
    for _ in range(10):
        answer = post_site.login("tess", "right tess").json
        assert answer is not None
        assert challenge in ("", answer["challenge"])
        challenge = answer["challenge"]
        answer = post_site.send_code("tess", challenge=challenge)
        assert answer.status_code == 429
        clock.advance(500)
    assert len(post_site.messages()) == 1


def test_bad_input_starts_no_wait(post_site: Site) -> None:
    """B099: ten requests that were refused before sending charge nothing; the eleventh is sent."""
    for number in range(10):
        who = ("", "vera\0", "x" * 300, "ver\u202ea", "\ud800")[number % 5]
        channel = ("sms", "post")[who == "ver\u202ea"]
        assert post_site.send_code(who, channel).status_code == 400
    assert quota(post_site) == 0
    assert post_site.send_code().status_code == 202
    assert len(post_site.messages()) == 1


def test_a_send_that_failed_starts_the_wait(post_site: Site, clock: Clock) -> None:
    """B099: the provider fails: everybody's 202; at once 429; after 60 s it is tried again."""
    post_site.outbox.failure = TimeoutError("the provider")
    assert post_site.send_code().status_code == 202
    post_site.messages()
    refused = post_site.send_code()
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    clock.advance(59_999)
    assert post_site.send_code().status_code == 429
    assert post_site.outbox.tries == 1
    post_site.outbox.failure = None
    clock.advance(1)
    assert post_site.send_code().status_code == 202
    assert len(post_site.messages()) == 1
    assert (post_site.outbox.tries, quota(post_site)) == (2, 2)


def ask_from_a_worker(url: str, now_ms: int) -> tuple[int, str | None, int]:
    """Ask for a code in a process of its own; give status, wait and what it sent."""
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY="of the session",
        AUTHGUARD_STORE_URL=url,
        AUTHGUARD_SECRET=SECRET,
        AUTHGUARD_POLICY=ALL_OF_S,
        AUTHGUARD_DEADLINE_MS=10_000,
        AUTHGUARD_BASE_URL="http://app.example",
    )
    site = Site(app, AuthGuard(app, clock=lambda: now_ms))
    options: dict[str, Any] = {"notifier": site.outbox, **MESSAGES}
    app.register_blueprint(site.auth.blueprint(accounts=site.people, **options), url_prefix="/auth")
    answer = site.send_code()
    sent = len(site.messages())
    site.guard.close()
    return answer.status_code, answer.headers.get("Retry-After"), sent


def test_workers_share_one_wait(valkey_url: str) -> None:
    """B100: twenty requests to four workers are one message; a restart doesn't end the wait."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(4) as workers:
        answers = workers.starmap(ask_from_a_worker, [(valkey_url, BEGIN_MS)] * 20, chunksize=1)
    assert sorted(answers) == [(202, None, 1)] + [(429, "60", 0)] * 19
    with spawn.Pool(1) as restarted:
        answer = restarted.apply(ask_from_a_worker, (valkey_url, BEGIN_MS + 10_000))
    assert answer == (429, "50", 0)


def test_refusals_move_no_end(post_site: Site, clock: Clock) -> None:
    """B102: sent at 0, refused at 30 and 59 and between, admitted at 60; the quota counts sends."""
    assert post_site.send_code().status_code == 202
    told = []
    for step_ms in (30_000, *[2_900] * 10):
        clock.advance(step_ms)
        refused = post_site.send_code()
        assert refused.status_code == 429
        told.append(int(refused.headers["Retry-After"]))
    assert (told[0], told[-1]) == (30, 1)
    clock.advance(1_000)
    assert post_site.send_code().status_code == 202
    assert quota(post_site) == 2
    assert len(post_site.messages()) == 2


def test_starting_again_is_no_dead_end(post_site: Site, clock: Clock) -> None:
    """B103: a second start within the wait is 429 and sends nothing; the code sent still works."""
    first = post_site.send_code().json
    assert first is not None
    clock.advance(5_000)
    refused = post_site.send_code()
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "55")
    (message,) = post_site.messages()
    assert message.code is not None
    assert post_site.verify(first["challenge"], message.code).status_code == 200


def test_starting_again_after_a_password_is_no_dead_end(post_site: Site, clock: Clock) -> None:
    """B103: with a second factor the second start leads to the code that is under way."""
    first = post_site.login("tess", "right tess").json
    clock.advance(5_000)
    second = post_site.login("tess", "right tess").json
    assert first is not None
    assert second == first | {"retry_after": 55}
    (message,) = post_site.messages()
    assert message.code is not None
    assert post_site.verify(second["challenge"], message.code).status_code == 200


def test_purposes_wait_apart_and_share_a_quota(
    site_factory: Callable[..., Site], clock: Clock
) -> None:
    """B104: no purpose waits for another; over all purposes the sixth code in an hour is 429."""
    site = site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=None)
    vera = site.people.by_key["key-1"]
    statuses = []
    for number in range(3):
        if number < 2:
            vera.second_factor = False
            statuses.append(site.send_code("vera").status_code)
        vera.second_factor = True
        statuses.append(site.login("vera", "right vera").status_code)
        if number == 0:
            forgot = site.post("/auth/password/forgot", json={"identifier": "vera"})
            statuses.append(forgot.status_code)
        clock.advance(120_000)
    assert statuses == [202, 200, 202, 202, 200, 200]
    kinds = sorted(message.kind for message in site.messages())
    assert kinds == ["code"] * 5 + ["reset"]
    vera.second_factor = False
    refused = site.send_code("vera", client=ELSEWHERE)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, str(3600 - 360))
    assert len(site.messages("code")) == 5
