"""What the blueprint is made with: a wrong argument stops the start, with its name and the mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard.errors import ConfigurationError
from authguard.flask import AuthGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from tests.flask.conftest import Site

MESSAGE_ROUTES = {
    "/auth/otp/send",
    "/auth/otp/verify",
    "/auth/password/forgot",
    "/auth/password/reset",
    "/auth/unlock",
    "/auth/devices/forget",
}
METHODS = (
    "find",
    "get",
    "replace_password_hash",
    "set_password",
    "forget_devices",
    "require_recovery",
    "lift_recovery",
)


class Pigeons:
    """A notifier with all that one must have."""

    def send(self, message: object) -> None:
        """Let it go."""


class Unsendable:
    """An object whose ``send`` is no method."""

    send = "by post"


WRONG: list[tuple[str, str, Any]] = [
    ("AG024", "notifier", object()),
    ("AG024", "notifier", "smtp://localhost"),
    ("AG024", "notifier", Unsendable()),
    ("AG024", "notifier", print),
    ("AG044", "channels", ()),
    ("AG044", "channels", []),
    ("AG044", "channels", "sms"),
    ("AG044", "channels", None),
    ("AG044", "channels", ("post",)),
    ("AG044", "channels", ("SMS",)),
    ("AG044", "channels", ("sms", "sms")),
    ("AG044", "channels", {"sms": 1}),
    ("AG044", "channels", ("sms", 5)),
    ("AG044", "channels", (["sms"],)),
    ("AG044", "sms_countries", "US"),
    ("AG044", "sms_countries", None),
    ("AG044", "sms_countries", ("us",)),
    ("AG044", "sms_countries", ("USA",)),
    ("AG044", "sms_countries", ("UK",)),
    ("AG044", "sms_countries", ("US", "XX")),
    ("AG044", "sms_countries", ("+1",)),
    ("AG044", "sms_countries", ("",)),
    ("AG044", "sms_countries", (1,)),
    ("AG044", "sms_countries", ("\u00c5X",)),
    ("AG044", "code_life_s", 0),
    ("AG044", "code_life_s", -1),
    ("AG044", "code_life_s", 601),
    ("AG044", "code_life_s", 60.0),
    ("AG044", "code_life_s", "300"),
    ("AG044", "code_life_s", True),
    ("AG044", "code_life_s", None),
    ("AG044", "accept_password", None),
    ("AG044", "accept_password", 8),
    ("AG044", "accept_password", "eight"),
]


@pytest.mark.parametrize(("code", "argument", "value"), WRONG)
def test_wrong_argument(
    site_factory: Callable[..., Site], code: str, argument: str, value: object
) -> None:
    """B138: each wrong argument is refused with its code, its name and a mend, before any route."""
    site = site_factory(blueprint=False)
    given: dict[str, Any] = {"notifier": Pigeons(), argument: value}
    with pytest.raises(ConfigurationError) as caught:
        site.auth.blueprint(accounts=site.people, **given)
    assert (caught.value.code, caught.value.where) == (code, f"blueprint({argument}=…)")
    assert caught.value.problem
    assert caught.value.mend


@pytest.mark.parametrize(
    "given",
    [
        {"channels": ("sms",)},
        {"channels": ["email"]},
        {"channels": ("email", "sms")},
        {"sms_countries": ()},
        {"sms_countries": {"NO", "SE"}},
        {"sms_countries": frozenset({"US"})},
        {"code_life_s": 1},
        {"code_life_s": 600},
        {"accept_password": lambda _password, _account: None},
    ],
)
def test_right_argument(site_factory: Callable[..., Site], given: dict[str, Any]) -> None:
    """What the documentation allows is taken, at both ends of every range."""
    site = site_factory(messages=given)
    assert site.browser().get("/auth/otp/send").status_code == 200


@pytest.mark.parametrize("method", METHODS)
def test_accounts_that_can_only_sign_in(site_factory: Callable[..., Site], method: str) -> None:
    """Accounts that lack a method which messages need stop the start, and it is named."""
    site = site_factory(blueprint=False, AUTHGUARD_BASE_URL="https://app.example")
    accounts = type("Accounts", (), {})()
    for name in METHODS:
        if name != method:
            setattr(accounts, name, getattr(site.people, name))
    blueprint = site.auth.blueprint(accounts=accounts, notifier=Pigeons())
    with pytest.raises(ConfigurationError, match=f"no method {method}") as caught:
        site.app.register_blueprint(blueprint)
    assert (caught.value.code, caught.value.where) == ("AG024", "blueprint(accounts=…)")
    assert "authguard.accounts.Members" in caught.value.mend


def test_messages_need_a_base_url(bare_app: Flask, site_factory: Callable[..., Site]) -> None:
    """AG043: links are never made from what a request says of its host, so the app must say it."""
    del bare_app.config["AUTHGUARD_BASE_URL"]
    with pytest.raises(ConfigurationError, match="AUTHGUARD_BASE_URL") as caught:
        site_factory(messages={})
    assert caught.value.code == "AG043"
    assert "https://example.com" in caught.value.mend


@pytest.mark.parametrize(
    "url",
    [
        "app.example",
        "//app.example",
        "ftp://app.example",
        "https://",
        "https:///auth",
        "https://me@app.example",
        "https://app.example?x=1",
        "https://app.example#x",
        "https://app .example",
        "https://app.example\n",
        "https://[::1",
        "",
        5,
        b"https://app.example",
    ],
)
def test_what_is_no_base_url(bare_app: Flask, url: object) -> None:
    """AG043: what no link can begin with stops the start, whether or not messages are sent."""
    bare_app.config["AUTHGUARD_BASE_URL"] = url
    with pytest.raises(ConfigurationError) as caught:
        AuthGuard(bare_app)
    assert (caught.value.code, caught.value.where) == ("AG043", "AUTHGUARD_BASE_URL")
    assert caught.value.mend
    assert not url or repr(url) not in str(caught.value)  # it may hold a password


@pytest.mark.parametrize(
    ("url", "secure"), [("https://a.example", True), ("http://a.example", False)]
)
def test_cookies_follow_the_base_url(
    site_factory: Callable[..., Site], url: str, secure: bool
) -> None:
    """Where the app is reached by https all cookies of the blueprint are for https alone."""
    site = site_factory(messages={}, AUTHGUARD_BASE_URL=url)
    cookies = site.login("vera", "right vera").headers.getlist("Set-Cookie")
    assert len(cookies) == 2
    assert all(("Secure" in cookie) is secure for cookie in cookies)
    assert all("HttpOnly" in cookie and "SameSite=Lax" in cookie for cookie in cookies)


def test_without_a_notifier_there_is_nothing_to_send(
    site: Site, post_site_routes: set[str]
) -> None:
    """Without a notifier there are the routes of passwords alone, and no page offers the others."""
    rules = {rule.rule for rule in site.app.url_map.iter_rules()}
    assert rules.isdisjoint(MESSAGE_ROUTES)
    assert post_site_routes == MESSAGE_ROUTES
    page = site.browser().get("/auth/login").text
    assert "/otp/" not in page
    assert "/password/" not in page
    with site.app.app_context():
        assert site.auth.drain_messages(0.1)


@pytest.fixture
def post_site_routes(bare_app: Flask) -> set[str]:
    """Give the routes that another app has with a notifier, and not without."""
    from flask import Flask

    from tests.flask.conftest import People, Spy

    routes = []
    for notifier in (None, Pigeons()):
        app = Flask(__name__)
        app.config.update(bare_app.config)
        blueprint = AuthGuard(app).blueprint(accounts=People(Spy().real), notifier=notifier)
        app.register_blueprint(blueprint, url_prefix="/auth")
        routes.append({rule.rule for rule in app.url_map.iter_rules()})
    return routes[1] - routes[0]


def test_registered_twice_it_sends_once(site_factory: Callable[..., Site]) -> None:
    """Under two prefixes there is one way out: the same limits, and one message for one request."""
    site = site_factory(messages={})
    again = site.auth.blueprint(
        accounts=site.people, notifier=site.outbox, channels=("sms", "email"), sms_countries=("US",)
    )
    site.app.register_blueprint(again, url_prefix="/other", name="other")
    body = {"identifier": "vera", "channel": "sms"}
    answers = [site.post(f"{prefix}/otp/send", json=body) for prefix in ("/other", "/auth")]
    assert [answer.status_code for answer in answers] == [202, 429]
    assert len(site.messages("code")) == 1


def test_the_life_of_a_code_is_told(site_factory: Callable[..., Site], clock: Any) -> None:
    """A code lives as long as the app says, and its message says so in whole minutes."""
    site = site_factory(clock=clock, messages={"code_life_s": 90})
    answer = site.send_code(channel="email").json
    assert answer is not None
    (message,) = site.messages("code")
    assert message.code is not None
    assert "within 1 minute," in message.body
    clock.advance(90_000)
    assert site.verify(answer["challenge"], message.code).status_code == 401
