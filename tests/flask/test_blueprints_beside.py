"""A second blueprint beside the first, and prefixes that no link can lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint

from authguard import ConfigurationError, InvalidInput
from authguard.smtp import SmtpNotifier
from tests.flask.conftest import MESSAGES, Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flask.conftest import Site

HOST = "mail.example.org"
SENDER = "no-reply@example.org"


def strict(password: str, _account: object) -> None:
    """Refuse every password."""
    raise InvalidInput("password", f"has {len(password)} characters")


def blueprint(site: Site, **changes: Any) -> Blueprint:
    """Make one that sends, as site_factory does save for the changes."""
    options = {"notifier": site.outbox, **MESSAGES, **changes}
    return site.auth.blueprint(accounts=site.people, **options)


def bare(site: Site) -> Blueprint:
    """Make one that sends nothing."""
    return site.auth.blueprint(accounts=site.people)


def refused(site: Site, second: Blueprint) -> None:
    """Check that it can't be registered beside the first."""
    with pytest.raises(ConfigurationError) as caught:
        site.app.register_blueprint(second, url_prefix="/two", name="two")
    assert (caught.value.code, caught.value.where) == ("AG020", "blueprint(notifier=…)")
    assert "register it twice" in caught.value.mend


@pytest.mark.parametrize(
    "changes",
    [
        {"notifier": Outbox()},
        {"channels": ("email",)},
        {"channels": ("email", "sms")},
        {"second_factor_channels": ("email",)},
        {"sms_countries": ("US", "CA")},
        {"code_life_s": 60},
        {"accept_password": strict},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_second_way_to_send_is_refused(
    site_factory: Callable[..., Site], changes: dict[str, Any]
) -> None:
    """B138: options that would count for nothing stop the start, each of them, at registration."""
    site = site_factory(messages={})
    refused(site, blueprint(site, **changes))


def test_beside_one_that_sends_none_that_does_not(site_factory: Callable[..., Site]) -> None:
    """Its pages would lead to routes that it does not have."""
    site = site_factory(messages={})
    refused(site, bare(site))


def test_beside_one_that_does_not_send_none_that_does(site_factory: Callable[..., Site]) -> None:
    """The first one's pages would be those of an app that sends nothing, and its sign-ins fail."""
    site = site_factory()
    refused(site, blueprint(site))


@pytest.mark.parametrize(
    "spelt",
    [
        {"channels": ["sms", "email"]},
        {"second_factor_channels": ["sms"]},
        {"sms_countries": {"US"}},
        {"sms_countries": ["US"]},
    ],
)
def test_a_second_one_made_alike_is_fine(
    site_factory: Callable[..., Site], spelt: dict[str, Any]
) -> None:
    """What says the same is the same, as a list, a set or a tuple, or left to the default."""
    site = site_factory(messages={})
    site.app.register_blueprint(blueprint(site, **spelt), url_prefix="/two", name="two")
    assert site.browser().get("/two/otp/send").status_code == 200


@pytest.mark.parametrize("sends", [True, False])
def test_one_object_may_be_registered_twice(site_factory: Callable[..., Site], sends: bool) -> None:
    """Under both prefixes the same routes work, and count together."""
    site = site_factory(blueprint=False, AUTHGUARD_POLICY=None)
    one = blueprint(site) if sends else bare(site)
    for number in ("one", "two"):
        site.app.register_blueprint(one, url_prefix=f"/{number}", name=number)
    body = {"identifier": "vera", "password": "wrong"}
    tries = [site.post(f"/{('one', 'two')[n % 2]}/login", json=body) for n in range(6)]
    assert [answer.status_code for answer in tries] == [401] * 5 + [429]
    for number in ("one", "two"):
        assert site.browser().get(f"/{number}/login").status_code == 200
    if sends:
        body = {"identifier": "omar"}
        assert site.post("/two/password/forgot", json=body).status_code == 202
        assert "http://app.example/one/password/reset?token=" in site.messages("reset")[0].body


def in_a_tenants_parent(site: Site) -> None:
    """Nest it in a blueprint whose prefix has a variable."""
    parent = Blueprint("parent", __name__, url_prefix="/<tenant>")
    parent.register_blueprint(blueprint(site), url_prefix="/auth")
    site.app.register_blueprint(parent)


def below_a_variable(site: Site) -> None:
    """Put a variable into its own prefix."""
    site.app.register_blueprint(blueprint(site), url_prefix="/<tenant>/auth")


def on_a_subdomain(site: Site) -> None:
    """Give it a host of its own."""
    site.app.register_blueprint(blueprint(site), url_prefix="/auth", subdomain="login")


@pytest.mark.parametrize("register", [in_a_tenants_parent, below_a_variable, on_a_subdomain])
def test_a_prefix_that_no_link_can_lead_to(
    site_factory: Callable[..., Site], register: Callable[[Site], None]
) -> None:
    """B138: AG045 at the first request, whichever it is: no live token is mailed to nowhere."""
    site = site_factory(blueprint=False)
    register(site)
    body = {"identifier": "vera"}
    for _ in range(2):
        for path in ("/acme/auth/password/forgot", "/anything/else"):
            with pytest.raises(ConfigurationError) as caught:
                site.post(path, json=body)
            assert caught.value.code == "AG045"
            assert "plain prefix" in caught.value.mend
    assert site.messages() == []


def test_a_plain_prefix_of_any_depth_is_fine(site_factory: Callable[..., Site]) -> None:
    """Nested below plain prefixes, links lead to where the routes are."""
    site = site_factory(blueprint=False)
    parent = Blueprint("parent", __name__, url_prefix="/a/b")
    parent.register_blueprint(blueprint(site), url_prefix="/c")
    site.app.register_blueprint(parent)
    assert site.post("/a/b/c/password/forgot", json={"identifier": "vera"}).status_code == 202
    assert "http://app.example/a/b/c/password/reset?token=" in site.messages("reset")[0].body


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({}, "channels"),
        ({"channels": ("email", "sms")}, "channels"),
        (
            {"channels": ("email",), "second_factor_channels": ("email", "sms")},
            "second_factor_channels",
        ),
    ],
)
def test_a_notifier_of_mail_alone_sends_no_texts(
    site_factory: Callable[..., Site], options: dict[str, Any], argument: str
) -> None:
    """B138: AG044 where text messages are asked for and mail is all there is; else nothing."""
    site = site_factory(blueprint=False)
    mail = SmtpNotifier(HOST, sender=SENDER)
    with pytest.raises(ConfigurationError, match="sms is one of them") as caught:
        site.auth.blueprint(accounts=site.people, notifier=mail, **options)
    assert (caught.value.code, caught.value.where) == ("AG044", f"blueprint({argument}=…)")
    assert "list email alone" in caught.value.mend
    both = SmtpNotifier(HOST, sender=SENDER, sms=site.outbox)
    site.auth.blueprint(accounts=site.people, notifier=both, **options)
    site.auth.blueprint(accounts=site.people, notifier=mail, channels=("email",))


def test_a_class_is_no_notifier(site_factory: Callable[..., Site]) -> None:
    """B138: AG024 for the class of a notifier: every message would fail, out of sight."""
    site = site_factory(blueprint=False)
    wrong: Any = Outbox
    with pytest.raises(ConfigurationError) as caught:
        site.auth.blueprint(accounts=site.people, notifier=wrong)
    assert (caught.value.code, caught.value.where) == ("AG024", "blueprint(notifier=…)")


@pytest.mark.parametrize(
    "options",
    [
        {"channels": ("email",)},
        {"second_factor_channels": ("email",)},
        {"second_factor_channels": ()},
        {"sms_countries": ("NO",)},
        {"code_life_s": 60},
        {"accept_password": strict},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_without_a_notifier_are_refused(
    site_factory: Callable[..., Site], options: dict[str, Any]
) -> None:
    """B138: AG044 for what would count for nothing, since nothing is sent."""
    site = site_factory(blueprint=False)
    with pytest.raises(ConfigurationError, match="without a notifier") as caught:
        site.auth.blueprint(accounts=site.people, **options)
    assert caught.value.code == "AG044"
    assert "give a notifier" in caught.value.mend
