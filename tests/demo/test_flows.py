"""Whole flows in a real browser, as people go through them: codes, links, locks, devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect
from sqlalchemy import delete

from authguard import Passwords
from demo_app.accounts import SqlAccounts
from demo_app.database import Database, MessageRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from authguard.testing import EmbeddedValkey
    from tests.demo.conftest import Demo

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

#: A wait for the next code that a test can sit out, and a lock that none has to.
POLICY = """
[login]
limits = [
  { name = "account", by = ["account"], sliding_log = "6/5m", lockout = ["5m"] },
  { name = "client",  by = ["client"],  sliding_log = "50/5m" },
  { name = "device",  by = ["device"],  sliding_log = "5/5m" },
]

[otp.send]
limits = [
  { name = "cooldown", by = ["account"], cooldown = ["6s"] },
  { name = "client",   by = ["client"],  sliding_log = "50/1h" },
]
"""

NEW_PASSWORD = "a new horse of hers"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Name the file of the module's demo."""
    return str(tmp_path_factory.mktemp("database") / "demo.sqlite")


@pytest.fixture(scope="module")
def demo(
    start_demo: Callable[..., Demo],
    valkey_server: EmbeddedValkey,
    database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Demo:
    """Run one demo for the module; a browser says by X-Forwarded-For where it is."""
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(POLICY)
    return start_demo(
        *("--policy", str(policy), "--valkey-url", valkey_server.url, "--database", database),
        *("--trusted-proxy", "127.0.0.1/32", "--deadline", "10000"),
    )


@pytest.fixture(autouse=True)
def fresh(demo: Demo, database: str, valkey_url: str) -> None:
    """Begin with no limit used, no message sent, and every account as at the demo's start."""
    with SqlAccounts(database) as accounts:
        accounts.create(Passwords())
    file = Database(database)
    with file.write() as session:
        session.execute(delete(MessageRow))
    file.close()


@pytest.fixture
def browse(open_page: Callable[..., Page]) -> Callable[..., Page]:
    """Open browsers of their own, each at an address of its own."""
    addresses = iter(range(1, 100))

    def open_(**settings: object) -> Page:
        headers = {"X-Forwarded-For": f"198.51.100.{next(addresses)}"}
        return open_page(extra_http_headers=headers, **settings)

    return open_


def settle(page: Page) -> None:
    """Wait until focus is where a page puts it; who types earlier types into nothing."""
    focused = page.locator("[autofocus]")
    if focused.count():
        expect(focused).to_be_focused()


def press(page: Page, role: Literal["button", "link"], name: str) -> None:
    """Press a button or follow a link, and wait for the page that it leads to."""
    with page.expect_navigation():
        page.locator("main").get_by_role(role, name=name).click()
    settle(page)


def sign_in(demo: Demo, page: Page, name: str, password: str) -> None:
    """Open the sign-in page and try to sign in."""
    page.goto(f"{demo.url}/auth/login")
    settle(page)
    page.get_by_label("Username, e-mail or phone").fill(name)
    page.get_by_label("Password").fill(password)
    press(page, "button", "Sign in")


def ask_for_code(demo: Demo, page: Page, name: str, channel: str = "Text message") -> None:
    """Ask for a code to sign in with."""
    page.goto(f"{demo.url}/auth/otp/send")
    settle(page)
    page.get_by_label("Username, e-mail or phone").fill(name)
    page.get_by_label(channel, exact=True).check()
    press(page, "button", "Send a code")


def enter(page: Page, code: str) -> None:
    """Enter a code."""
    page.get_by_label("Code", exact=True).fill(code)
    press(page, "button", "Sign in")


def newest(demo: Demo, reader: Page) -> Locator:
    """Look at the newest message of the outbox."""
    reader.goto(f"{demo.url}/outbox")
    return reader.get_by_role("article").first


def code_in(message: Locator) -> str:
    """Read a message's code off the page."""
    return message.locator(".take code").inner_text()


def signed_in_as(page: Page, name: str) -> None:
    """Expect the page of somebody who is signed in."""
    expect(page.get_by_text(f"You are signed in as {name}.")).to_be_visible()


def status_of_me(demo: Demo, page: Page) -> int:
    """Tell whether this browser is signed in: 200 or 401."""
    return page.request.get(f"{demo.url}/auth/me").status


def lock(demo: Demo, name: str) -> None:
    """Guess from several strangers' addresses until the account's log is full, and on."""
    strangers = [demo.visitor(f"203.0.113.{number}") for number in (1, 2, 3)]
    statuses = [stranger.login(name, "a guess").status for stranger in strangers * 3]
    assert statuses == [401] * 6 + [429] * 3


def test_second_factor(demo: Demo, browse: Callable[..., Page]) -> None:
    """Password and code of her phone sign tess in; a wrong code is said, and the right one goes."""
    page, phone = browse(), browse()
    phone.goto(f"{demo.url}/outbox")
    expect(phone.get_by_role("heading", name="No messages")).to_be_visible()
    sign_in(demo, page, "tess", "correct horse tess")
    expect(page.get_by_role("heading", name="Enter the code we sent you")).to_be_visible()
    expect(page.get_by_text("We have sent a code to your phone. It has 6 digits.")).to_be_visible()
    assert status_of_me(demo, page) == 401

    expect(phone.get_by_role("status")).to_have_text("1 new message. Show it")
    press(phone, "link", "Show it")
    message = phone.get_by_role("article").first
    expect(message.get_by_role("heading", name="Code by text message")).to_be_visible()
    code = code_in(message)
    enter(page, f"{(int(code) + 1) % 1_000_000:06}")
    expect(page).to_have_title("Not signed in: Enter the code we sent you | authguard demo")
    expect(page.locator("#notice")).to_have_text("That code is wrong or too old.")
    field = page.get_by_label("Code", exact=True)
    expect(field).to_be_focused()
    expect(field).to_have_value("")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.press_sequentially(code)
    with page.expect_navigation():
        field.press("Enter")
    signed_in_as(page, "tess")


@pytest.mark.slow
def test_new_code_after_its_wait(demo: Demo, browse: Callable[..., Page]) -> None:
    """The wait for a new code is shown, told and kept; then the new code works and no older one."""
    page, reader = browse(), browse()
    ask_for_code(demo, page, "omar", "E-mail")
    button, timer = page.get_by_role("button", name="Send a new code"), page.get_by_role("timer")
    expect(button).to_be_disabled()
    shown = timer.inner_text()
    told = page.locator("[aria-live=polite]")
    expect(told).to_have_text("")
    message = newest(demo, reader)
    expect(message.get_by_role("heading", name="Code by e-mail")).to_be_visible()
    old = code_in(message)
    expect(timer).not_to_have_text(shown)
    expect(page.get_by_role("button", name="Sign in")).to_be_enabled()

    expect(button).to_be_enabled()
    expect(told).to_have_text("A new code is possible now.")
    expect(timer).to_be_hidden()
    press(page, "button", "Send a new code")
    expect(page.get_by_role("button", name="Send a new code")).to_be_disabled()
    new = code_in(newest(demo, reader))
    assert new != old
    enter(page, old)
    expect(page.locator("#notice")).to_have_text("That code is wrong or too old.")
    enter(page, new)
    signed_in_as(page, "omar")


def test_refused_new_code_leaves_the_old_one_usable(
    demo: Demo, browse: Callable[..., Page]
) -> None:
    """A new code that is refused holds back the next request for one, never the code one has."""
    page, reader = browse(), browse()
    ask_for_code(demo, page, "vera")
    code = code_in(newest(demo, reader))
    too_early = "button => { button.disabled = false; button.click() }"  # as from a second tab
    with page.expect_navigation():
        page.get_by_role("button", name="Send a new code").evaluate(too_early)
    expect(page.get_by_text("It is too soon for another code.")).to_be_visible()
    expect(page.get_by_role("button", name="Send a new code")).to_be_disabled()
    expect(page.get_by_role("button", name="Sign in")).to_be_enabled(timeout=1000)
    enter(page, code)
    signed_in_as(page, "vera")


def test_refused_code_keeps_what_was_chosen(demo: Demo, browse: Callable[..., Page]) -> None:
    """Refused, the form still holds the name and the channel that were chosen."""
    page = browse()
    for _ in range(2):
        ask_for_code(demo, page, "vera", "E-mail")
    expect(page).to_have_title("Wait: Sign in with a code | authguard demo")
    expect(page.get_by_label("Username, e-mail or phone")).to_have_value("vera")
    expect(page.get_by_label("E-mail", exact=True)).to_be_checked(timeout=1000)


def test_code_instead_of_a_password(demo: Demo, browse: Callable[..., Page]) -> None:
    """Vera signs in by a code alone; for a name that nobody has the page is the same."""
    page, nobody, phone = browse(), browse(), browse()
    page.goto(f"{demo.url}/auth/login")
    settle(page)
    press(page, "link", "Sign in with a code")
    ask_for_code(demo, page, "+1 (415) 555-0101")
    ask_for_code(demo, nobody, "ghost")
    texts = [each.locator("main").aria_snapshot().split("New code") for each in (page, nobody)]
    assert texts[0][0] == texts[1][0]
    assert "If the account exists, a code is on its way. It has 8 digits." in texts[0][0]
    message = newest(demo, phone)
    expect(phone.get_by_role("article")).to_have_count(1)
    enter(nobody, code_in(message))
    expect(nobody.locator("#notice")).to_have_text("That code is wrong or too old.")
    enter(page, code_in(message))
    signed_in_as(page, "vera")


def test_new_password_from_the_mail(demo: Demo, browse: Callable[..., Page]) -> None:
    """The mailed link sets a password once; the old one and other browsers' sessions are over."""
    elsewhere, page = browse(), browse()
    sign_in(demo, elsewhere, "vera", "correct horse vera")
    signed_in_as(elsewhere, "vera")
    page.goto(f"{demo.url}/auth/login")
    settle(page)
    press(page, "link", "Forgot your password?")
    page.get_by_label("Username, e-mail or phone").fill("vera@example.test")
    press(page, "button", "Send a link")
    expect(page).to_have_title("Check your mail | authguard demo")

    newest(demo, page)
    press(page, "link", "Choose a new password")
    link = page.url
    page.reload()
    settle(page)
    field = page.get_by_label("New password", exact=True)
    field.fill(NEW_PASSWORD)
    expect(field).to_have_attribute("type", "password")
    page.get_by_role("button", name="Show password").click()
    expect(field).to_have_attribute("type", "text")
    assert status_of_me(demo, elsewhere) == 200
    press(page, "button", "Change password")
    expect(page).to_have_title("Your password is changed | authguard demo")
    assert status_of_me(demo, page) == 401
    reply = elsewhere.reload()
    assert reply is not None
    assert reply.status == 401
    expect(elsewhere.get_by_text("Sign in to see this page.")).to_be_visible()

    sign_in(demo, page, "vera", "correct horse vera")
    expect(page.locator("#notice")).to_have_text("Wrong name or password.")
    sign_in(demo, page, "vera", NEW_PASSWORD)
    signed_in_as(page, "vera")
    expect(newest(demo, page)).to_contain_text("Your password was changed")
    page.goto(link)
    settle(page)
    page.get_by_label("New password", exact=True).fill("of somebody else")
    press(page, "button", "Change password")
    expect(page.locator("#notice")).to_contain_text("This link does not work any more.")


def test_lock_by_others_and_its_two_ways_out(demo: Demo, browse: Callable[..., Page]) -> None:
    """Others lock omar out: a browser of his gets in, a new one once he has used his one mail."""
    known, new, reader = browse(), browse(), browse()
    sign_in(demo, known, "omar", "correct horse omar")
    press(known, "button", "Sign out")
    lock(demo, "omar")
    sign_in(demo, new, "omar", "correct horse omar")
    expect(new).to_have_title("Wait: Sign in | authguard demo")
    expect(new.get_by_role("button", name="Sign in")).to_be_disabled()
    sign_in(demo, known, "omar", "correct horse omar")
    signed_in_as(known, "omar")

    newest(demo, reader)
    expect(reader.get_by_role("heading", name="Unlock sign-in by e-mail")).to_have_count(1)
    press(reader, "link", "Unlock sign-in")
    reader.reload()  # to look at it ends nothing
    settle(reader)
    sign_in(demo, new, "omar", "correct horse omar")
    expect(new).to_have_title("Wait: Sign in | authguard demo")
    press(reader, "button", "Unlock sign-in")
    expect(reader).to_have_title("The wait is over | authguard demo")
    assert status_of_me(demo, reader) == 401
    sign_in(demo, new, "omar", "correct horse omar")
    signed_in_as(new, "omar")


def test_forgotten_device_is_a_strangers(demo: Demo, browse: Callable[..., Page]) -> None:
    """Once vera has forgotten her devices she stays signed in; in the next lock she must wait."""
    page = browse()
    sign_in(demo, page, "vera", "correct horse vera")
    press(page, "button", "Forget my devices")
    expect(page.get_by_text("Your devices are forgotten.")).to_be_visible()
    assert status_of_me(demo, page) == 200
    press(page, "button", "Sign out")
    lock(demo, "vera")
    sign_in(demo, page, "vera", "correct horse vera")
    expect(page).to_have_title("Wait: Sign in | authguard demo")


def test_everything_by_keyboard(demo: Demo, browse: Callable[..., Page]) -> None:
    """Link, new password, sign-in, devices and code without a mouse; focus is where one types."""
    page, reader = browse(), browse()
    keyboard = page.keyboard

    def tab_to(name: str) -> None:
        for _ in range(20):
            keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent.trim()") == name:
                return
        pytest.fail(f"Tab never comes to {name!r}")

    def go(key: str = "Enter") -> None:
        with page.expect_navigation():
            keyboard.press(key)
        settle(page)

    page.goto(f"{demo.url}/auth/login")
    settle(page)
    tab_to("Forgot your password?")
    go()
    keyboard.type("vera")
    go()
    newest(demo, page)
    tab_to("Choose a new password")
    go()
    tab_to("Show")
    keyboard.press("Space")
    expect(page.get_by_role("button", name="Show password")).to_have_attribute(
        "aria-pressed", "true"
    )
    keyboard.press("Shift+Tab")
    keyboard.type(NEW_PASSWORD)
    expect(page.get_by_label("New password", exact=True)).to_have_value(NEW_PASSWORD)
    tab_to("Change password")
    go("Space")
    tab_to("Go to sign-in")
    go()
    keyboard.type("vera")
    keyboard.press("Tab")
    keyboard.type(NEW_PASSWORD)
    go()
    tab_to("Forget my devices")
    go()
    tab_to("Sign out")
    go()
    tab_to("Sign in with a code")
    go()
    keyboard.type("vera")
    keyboard.press("Tab")
    keyboard.press("ArrowRight")
    expect(page.get_by_label("E-mail", exact=True)).to_be_checked()
    go()
    keyboard.type(code_in(newest(demo, reader)))
    go()
    signed_in_as(page, "vera")


def test_small_phone_without_script(demo: Demo, browse: Callable[..., Page]) -> None:
    """At 360 px and without JavaScript every form works, and no page is scrolled sideways."""
    page = browse(java_script_enabled=False, viewport={"width": 360, "height": 740})

    def on(title: str) -> None:
        expect(page).to_have_title(f"{title} | authguard demo")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, title

    page.goto(f"{demo.url}/auth/password/forgot")
    settle(page)
    on("Forgot your password?")
    page.get_by_label("Username, e-mail or phone").fill("omar")
    press(page, "button", "Send a link")
    on("Check your mail")
    newest(demo, page)
    on("Outbox")
    press(page, "link", "Choose a new password")
    on("Choose a new password")
    expect(page.get_by_role("button", name="Show password")).to_be_hidden()
    page.get_by_label("New password", exact=True).fill(NEW_PASSWORD)
    press(page, "button", "Change password")
    on("Your password is changed")

    lock(demo, "omar")
    sign_in(demo, page, "omar", NEW_PASSWORD)
    on("Wait: Sign in")
    newest(demo, page)
    press(page, "link", "Unlock sign-in")
    on("Unlock sign-in")
    press(page, "button", "Unlock sign-in")
    on("The wait is over")
    press(page, "link", "Go to sign-in")
    sign_in(demo, page, "omar", "correct horse omar")
    on("Not signed in: Sign in")
    sign_in(demo, page, "omar", NEW_PASSWORD)
    on("Signed in")
    press(page, "button", "Forget my devices")
    on("Devices forgotten: Signed in")
    press(page, "button", "Sign out")
    on("Sign in")

    ask_for_code(demo, page, "omar", "E-mail")
    on("Enter the code we sent you")
    press(page, "button", "Send a new code")  # nothing counts down: it can be asked too early
    expect(page.get_by_text("It is too soon for another code.")).to_be_visible()
    code = code_in(newest(demo, page))
    page.goto(f"{demo.url}/auth/otp/verify")
    settle(page)
    enter(page, code)
    on("Signed in")
    signed_in_as(page, "omar")
