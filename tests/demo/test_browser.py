"""The demo in a real browser: signing in, being refused, waiting, and being let in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from .conftest import Demo

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

#: Three tries, then a lock of a few seconds that a test can sit out.
POLICY = """
[login]
limits = [
  { name = "pair",    by = ["account", "client"], sliding_log = "3/5m", lockout = ["6s"] },
  { name = "account", by = ["account"], sliding_log = "100/5m" },
  { name = "client",  by = ["client"],  sliding_log = "200/5m" },
]
"""


@pytest.fixture(scope="module")
def demo(start_demo: Callable[..., Demo], tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo with a lock of six seconds."""
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(POLICY)
    return start_demo("--policy", str(policy))


def sign_in(page: Page, name: str, password: str) -> None:
    """Fill in the form and send it, and wait for the answer."""
    page.get_by_label("Username, e-mail or phone").fill(name)
    page.get_by_label("Password").fill(password)
    with page.expect_navigation():
        page.get_by_role("button", name="Sign in").click()


def test_signs_in_and_out(demo: Demo, open_page: Callable[..., Page]) -> None:
    """Name and password lead to a page that says who is signed in, and out again."""
    page = open_page()
    page.goto(f"{demo.url}/")
    page.get_by_role("link", name="Go to sign-in").click()
    sign_in(page, "Omar@Example.test", "correct horse omar")
    expect(page.get_by_text("You are signed in as omar.")).to_be_visible()
    with page.expect_navigation():
        page.get_by_role("button", name="Sign out").click()
    assert page.goto(f"{demo.url}/auth/me").status == 401
    expect(page.get_by_text("signed in as omar")).to_have_count(0)


@pytest.mark.slow
def test_refused_waits_and_is_let_in(demo: Demo, open_page: Callable[..., Page]) -> None:
    """Refused, the page counts down, then takes the right password: no reload in between."""
    page = open_page()
    page.goto(f"{demo.url}/auth/login")
    for _ in range(3):
        sign_in(page, "vera", "a guess")
        expect(page).to_have_title("Not signed in: Sign in | authguard demo")
    sign_in(page, "vera", "correct horse vera")
    expect(page).to_have_title("Wait: Sign in | authguard demo")
    page.evaluate("window.samePage = true")

    name, password = page.get_by_label("Username, e-mail or phone"), page.get_by_label("Password")
    expect(name).to_have_value("vera")
    expect(password).to_have_value("")
    expect(password).to_be_focused()
    button, clock = page.get_by_role("button", name="Sign in"), page.get_by_role("timer")
    expect(button).to_be_disabled()
    name.fill("omar")  # another account may be tried at once
    expect(button).to_be_enabled()
    name.fill("vera")
    expect(button).to_be_disabled()
    shown = clock.inner_text()
    expect(clock).not_to_have_text(shown)
    assert "0:00" < clock.inner_text() < shown
    password.fill("correct horse vera")  # what is typed while waiting stays

    expect(button).to_be_enabled()
    expect(page.locator("#notice")).to_have_text("You can try again now.", use_inner_text=True)
    expect(page.locator("[aria-live=polite]")).to_have_text("You can try again now.")
    expect(page).to_have_title("Sign in | authguard demo")
    assert page.evaluate("window.samePage")
    with page.expect_navigation():
        password.press("Enter")
    expect(page.get_by_text("You are signed in as vera.")).to_be_visible()


@pytest.mark.slow
def test_keyboard_alone(demo: Demo, open_page: Callable[..., Page]) -> None:
    """Fail, wait, sign in and sign out without a mouse; focus starts where typing starts."""
    page = open_page()
    page.goto(f"{demo.url}/auth/login")
    keyboard = page.keyboard
    expect(page.get_by_label("Username, e-mail or phone")).to_be_focused()
    keyboard.type("omar@example.test")
    for turn in range(3):
        if turn == 0:
            keyboard.press("Tab")
        keyboard.type("a guess")
        with page.expect_navigation():
            keyboard.press("Enter")
        expect(page.get_by_label("Password")).to_be_focused()
    keyboard.type("correct horse omar")
    with page.expect_navigation():
        keyboard.press("Enter")
    expect(page.get_by_role("timer")).to_be_visible()
    expect(page.get_by_label("Password")).to_be_focused()

    keyboard.type("correct horse omar")
    keyboard.press("Enter")  # the button is disabled, so this asks nothing
    expect(page.get_by_role("button", name="Sign in")).to_be_enabled()
    with page.expect_navigation():
        keyboard.press("Enter")
    expect(page.get_by_text("You are signed in as omar.")).to_be_visible()
    for _ in range(10):
        keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('button')"):
            break
    with page.expect_navigation():
        keyboard.press("Enter")
    assert page.goto(f"{demo.url}/auth/me").status == 401


def test_without_script_the_form_stays_usable(demo: Demo, open_page: Callable[..., Page]) -> None:
    """Without JavaScript the wait is told, and the form can be sent again."""
    page = open_page(java_script_enabled=False)
    page.goto(f"{demo.url}/auth/login")
    for _ in range(4):
        sign_in(page, "ghost", "a guess")
    expect(page.get_by_text("Counted from the moment this page opened.")).to_be_visible()
    expect(page.get_by_role("timer")).to_have_text("0:06")
    expect(page.get_by_role("button", name="Sign in")).to_be_enabled()


def test_pages_of_the_demo(demo: Demo, open_page: Callable[..., Page]) -> None:
    """Home and outbox lead to each other, and neither is wider than a small phone."""
    page = open_page(viewport={"width": 320, "height": 640})
    page.goto(f"{demo.url}/")
    for link, title in (("Outbox", "Outbox"), ("Start", "Start here"), ("Sign in", "Sign in")):
        page.get_by_role("navigation").get_by_role("link", name=link).click()
        expect(page).to_have_title(f"{title} | authguard demo")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
