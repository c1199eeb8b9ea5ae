"""The load page and the API behind it: who gets through when capacity runs short."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.demo.test_pages import CONTRAST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from authguard.testing import EmbeddedValkey
    from tests.demo.conftest import Demo, Visitor

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

PASSWORDS = {name: f"correct horse {name}" for name in ("vera", "omar")}


@pytest.fixture(scope="module")
def demo(start_demo: Callable[..., Demo], valkey_server: EmbeddedValkey) -> Demo:
    """Run one demo for the module."""
    return start_demo("--valkey-url", valkey_server.url, "--deadline", "10000")


@pytest.fixture(autouse=True)
def fresh(valkey_url: str) -> None:
    """Begin with no load set and no lane used."""


def visit_as(demo: Demo, name: str) -> Visitor:
    """Sign somebody in, as a script does."""
    visitor = demo.visitor()
    assert visitor.login(name, PASSWORDS[name]).status == 200
    return visitor


def sign_in(page: Page, demo: Demo, name: str) -> None:
    """Sign somebody in, in the browser."""
    page.goto(f"{demo.url}/auth/login")
    page.get_by_label("Username, e-mail or phone").fill(name)
    page.get_by_label("Password").fill(PASSWORDS[name])
    with page.expect_navigation():
        page.get_by_role("button", name="Sign in").click()


def press(page: Page, name: str) -> None:
    """Press one of the loads."""
    with page.expect_navigation():
        page.get_by_role("button", name=name).click()


def fire(page: Page) -> dict[int, int]:
    """Send the requests; give how many were answered how."""
    page.get_by_role("button", name="Send 30 requests").click()
    cells = {status: page.locator(f"[data-status='{status}']") for status in (200, 429, 503)}
    for cell in cells.values():
        expect(cell).to_have_text(re.compile(r"^\d+$"))
    expect(page.get_by_role("button", name="Send 30 requests")).to_be_enabled()
    return {status: int(cell.inner_text()) for status, cell in cells.items()}


def now(page: Page, limit: str) -> str:
    """Tell how many a limit admits now, as the page shows it."""
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=limit, exact=True))
    return row.get_by_role("cell").nth(1).inner_text()


@pytest.mark.browser
@pytest.mark.parametrize("script", [True, False])
def test_the_administrator_gets_through(
    demo: Demo, open_page: Callable[..., Page], script: bool
) -> None:
    """With the database down all of vera's requests are done, and a fifth of the lane omar's."""
    page = open_page(java_script_enabled=script)
    page.goto(f"{demo.url}/")
    page.get_by_role("navigation").get_by_role("link", name="Load").click()
    expect(page.get_by_text("The load is 1: all is well.")).to_be_visible()
    expect(page.get_by_text("You are not signed in")).to_be_visible()
    assert (now(page, "ordinary"), now(page, "operators")) == ("50", "100")

    press(page, "Database down")
    expect(page.get_by_text("The load is 0.2.")).to_be_visible()
    expect(
        page.get_by_text(re.compile(r"ends by itself at \d\d:\d\d:\d\d UTC, (5\d|60) seconds"))
    ).to_be_visible()
    assert (now(page, "ordinary"), now(page, "operators")) == ("10", "100")

    sign_in(page, demo, "omar")
    page.goto(f"{demo.url}/load")
    expect(page.get_by_text("You are signed in as omar: your requests take")).to_be_visible()
    omars = fire(page)
    # Ten at once, and ten more with each second that the thirty take.
    assert 10 <= omars[200] < 30
    assert (omars[429], sum(omars.values())) == (0, 30)

    sign_in(page, demo, "vera")
    page.goto(f"{demo.url}/load")
    expect(page.get_by_text("the demo's administrator: your requests take")).to_be_visible()
    assert fire(page) == {200: 30, 429: 0, 503: 0}
    press(page, "1: all")
    assert now(page, "ordinary") == "50"


@pytest.mark.browser
def test_no_share_at_all_leaves_the_operators(demo: Demo, open_page: Callable[..., Page]) -> None:
    """At a load of 0 every ordinary request is a 503, and every one of vera's is done."""
    page = open_page()
    page.goto(f"{demo.url}/load")
    press(page, "0: nothing")
    assert fire(page) == {200: 0, 429: 0, 503: 30}
    expect(page.get_by_role("button", name="Send 30 requests")).to_be_focused()
    sign_in(page, demo, "vera")
    page.goto(f"{demo.url}/load")
    assert fire(page) == {200: 30, 429: 0, 503: 0}


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_can_be_read_and_fits(
    demo: Demo, open_page: Callable[..., Page], scheme: str
) -> None:
    """Contrast is WCAG AA's in light and dark, and nothing scrolls sideways at 320 px."""
    page = open_page(color_scheme=scheme, viewport={"width": 320, "height": 640})
    for load in ("1: all", "Database down"):
        page.goto(f"{demo.url}/load")
        press(page, load)
        page.mouse.move(0, 0)
        page.wait_for_timeout(300)  # the buttons' colours have come to rest
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.browser
def test_the_keyboard_does_it_all(demo: Demo, open_page: Callable[..., Page]) -> None:
    """The load is set and the requests are sent by keyboard alone."""
    page = open_page()
    page.goto(f"{demo.url}/load")
    page.get_by_role("button", name="0.5: half").focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(page.get_by_text("The load is 0.5.")).to_be_visible()
    page.get_by_role("button", name="Send 30 requests").focus()
    page.keyboard.press("Space")
    expect(page.locator("[data-status='200']")).to_have_text(re.compile(r"^\d+$"))


def test_what_scripts_see(demo: Demo) -> None:
    """The API answers in JSON; short of capacity it is a 503 of its type that says how long."""
    omar, vera = visit_as(demo, "omar"), visit_as(demo, "vera")
    done = omar.get("/api/work", "application/json")
    assert (done.status, done.json["username"], done.json["priority"]) == (200, "omar", "normal")
    assert "RateLimit" in done.headers
    assert demo.visitor().get("/api/work", "application/json").json["username"] is None
    assert omar.post_form("/load", load="none").status == 303
    shed = omar.get("/api/work", "application/json")
    assert (shed.status, shed.headers["Cache-Control"]) == (503, "no-store")
    assert shed.headers["Content-Type"] == "application/problem+json"
    assert shed.json["type"].endswith("temporary-reduced-capacity")
    assert int(shed.headers["Retry-After"]) >= 1
    done = vera.get("/api/work", "application/json")
    assert (done.status, done.json["priority"]) == (200, "operator")


def test_ones_own_limit_is_another_matter(demo: Demo) -> None:
    """Who has used up a limit of one's own is told 429, whatever the load is."""
    omar = visit_as(demo, "omar")
    counts = [0, 0]
    for _ in range(4):
        page = omar.post_form("/load/fire").body
        for number, status in enumerate((200, 429)):
            found = re.search(rf'data-status="{status}">(\d+)<', page)
            assert found is not None
            counts[number] += int(found[1])
    assert counts[0] <= 100
    assert sum(counts) == 120
    assert 'data-status="503">0<' in page


def test_another_sites_page_sets_nothing(demo: Demo) -> None:
    """A form of another site is refused, and so is a load that the page doesn't offer."""
    visitor = demo.visitor()
    for path in ("/load", "/load/fire"):
        fields = {"Sec-Fetch-Site": "cross-site", "Accept": "text/html"}
        assert visitor._ask(path, b"load=none", fields).status == 403
    assert visitor.post_form("/load", load="0.3").status == 400
    assert visitor.post_form("/load").status == 400
    assert "The load is 1: all is well." in visitor.get("/load").body


def test_a_frozen_valkey_is_told_of(start_demo: Callable[..., Demo]) -> None:
    """Without Valkey's answer the page says so, and neither a load nor work is had."""
    demo = start_demo()
    found = re.search(r"kill -STOP (\d+)", demo.greeting)
    assert found is not None
    os.kill(int(found[1]), signal.SIGSTOP)
    try:
        page = demo.visitor().get("/load")
        assert page.status == 200
        assert "Valkey gives no answer" in page.body
        assert demo.visitor().post_form("/load", load="none").status == 503
        assert demo.visitor().get("/api/work", "application/json").status == 503
    finally:
        os.kill(int(found[1]), signal.SIGCONT)


def test_a_policy_of_ones_own_for_the_api(start_demo: Callable[..., Demo], tmp_path: Path) -> None:
    """A policy file's own [api] takes the place of the demo's whole, lanes or none."""
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[api]\nlimits = [{ name = "few", by = ["client"], sliding_log = "5/1h", elastic = true }]'
    )
    demo = start_demo("--policy", str(policy), "--deadline", "10000")
    vera = visit_as(demo, "vera")
    assert "few" in vera.get("/load").body
    statuses = [vera.get("/api/work", "application/json").status for _ in range(6)]
    assert statuses == [200] * 5 + [429]
