"""The package's pages in every state: the countdown's clock, and who can use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from flask import render_template
from playwright.sync_api import expect

from demo_app.accounts import PEOPLE
from demo_app.app import create_app
from demo_app.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page, Route

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

LOGIN, ERROR, ME = (f"authguard/{name}.html" for name in ("login", "error", "me"))
REFUSED = {"identifier": "vera", "state": "refused", "message": "Too many attempts."}
LONG_NAME = "a-very-long-name-without-any-blank-in-it" * 6
STATES = {
    "ready": (LOGIN, {"identifier": "", "state": "ready", "message": None, "retry_after": None}),
    "failed": (
        LOGIN,
        {"identifier": LONG_NAME, "state": "failed", "message": "No.", "retry_after": None},
    ),
    "refused": (LOGIN, {**REFUSED, "retry_after": 90_000}),
    "unavailable": (LOGIN, {**REFUSED, "state": "unavailable", "retry_after": 7}),
    "me": (ME, {"username": LONG_NAME}),
    "error": (ERROR, {"title": "Refused", "message": "From elsewhere.", "retry_after": None}),
    "error-wait": (ERROR, {"title": "Refused", "message": "Too many.", "retry_after": 30}),
    "home": ("demo/home.html", {"people": PEOPLE}),
    "outbox": ("demo/outbox.html", {}),
}

#: Texts whose contrast is less than WCAG AA's 4.5 to what is painted behind them.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgb = (...layers) => {  // painted one upon the other, the page's own colour first
    for (const colour of layers) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = ([r, g, b]) => [r, g, b]
    .map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const poor = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const shown = element.checkVisibility({ visibilityProperty: true });
    if (!shown || !texts.currentNode.data.trim()) continue;
    const behind = [];
    for (let at = element; at; at = at.parentElement)
      behind.unshift(getComputedStyle(at).backgroundColor);
    const ground = luminance(rgb(...behind));
    const text = luminance(rgb(...behind, getComputedStyle(element).color));
    const ratio = (Math.max(ground, text) + 0.05) / (Math.min(ground, text) + 0.05);
    if (ratio < 4.5) poor.push(`${texts.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


@pytest.fixture
def show(tmp_path: Path) -> Callable[..., None]:
    """Show a template in a state of one's choice, under the pages' own security policy."""
    app = create_app(Settings("valkey://127.0.0.1:1/0", str(tmp_path / "accounts.sqlite")))

    def show_(page: Page, template: str, **context: object) -> None:
        def answer(route: Route) -> None:
            path = route.request.url.removeprefix("http://site.test")
            if path != "/page":
                reply = app.test_client().get(path, buffered=True)
                route.fulfill(
                    status=reply.status_code, headers=dict(reply.headers), body=reply.data
                )
                return
            with app.test_request_context():
                body = render_template(template, **context)
            headers = {"Content-Security-Policy": "default-src 'self'"}
            route.fulfill(body=body, content_type="text/html; charset=utf-8", headers=headers)

        page.route("http://site.test/**", answer)
        page.goto("http://site.test/page")

    return show_


def frozen(page: Page) -> Page:
    """Stop the page's clock, so that only the test moves it."""
    page.clock.install(time=0)
    page.clock.pause_at(1)
    return page


class TestCountdown:
    """The countdown on a clock that the test moves."""

    def test_counts_by_the_second(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """It starts at the wait, shows each second, and ends at the wait and not before."""
        page = frozen(open_page())
        show(page, LOGIN, **REFUSED, retry_after=3_601)
        clock, button = page.get_by_role("timer"), page.get_by_role("button", name="Sign in")
        expect(clock).to_have_text("1:00:01")
        page.clock.run_for(1_000)
        expect(clock).to_have_text("1:00:00")
        page.clock.run_for(1_000)
        expect(clock).to_have_text("59:59")
        page.clock.run_for(3_598_000)
        expect(clock).to_have_text("0:01")
        expect(button).to_be_disabled()
        page.clock.run_for(1_000)
        expect(button).to_be_enabled()
        expect(page.locator("#notice")).to_have_text("You can try again now.", use_inner_text=True)

    def test_tells_a_screen_reader_at_steps(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """Its polite region speaks a few times in ten minutes, not each second."""
        page = frozen(open_page())
        show(page, LOGIN, **REFUSED, retry_after=605)
        page.evaluate("""() => {
            const region = document.querySelector("[aria-live=polite]");
            window.told = [];
            new MutationObserver(() => told.push(region.textContent))
                .observe(region, { childList: true });
        }""")
        for _ in range(61):
            page.clock.run_for(10_000)
            page.evaluate("1")  # lets the observer speak
        assert page.evaluate("told") == [
            "10 minutes left.",
            "5 minutes left.",
            "2 minutes left.",
            "1 minute left.",
            "30 seconds left.",
            "10 seconds left.",
            "You can try again now.",
        ]

    def test_wakes_from_a_sleep(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """After a sleep that swallowed all its ticks it shows the time, not the ticks."""
        page = frozen(open_page())
        show(page, LOGIN, **REFUSED, retry_after=900)
        page.clock.fast_forward(840_500)
        expect(page.get_by_role("timer")).to_have_text("1:00")
        expect(page.locator("[aria-live=polite]")).to_have_text("1 minute left.")

    def test_is_right_when_back_brings_it_out_of_the_cache(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """Restored by the Back button after the wait, the page lets the person try at once."""
        page = open_page()
        show(page, LOGIN, **REFUSED, retry_after=900)
        expect(page.get_by_role("button", name="Sign in")).to_be_disabled()
        page.evaluate("""() => {
            const later = performance.now() + 900_000;
            performance.now = () => later;
            dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }));
        }""")
        assert page.get_by_role("button", name="Sign in").is_enabled()

    def test_wall_clock_does_not_matter(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """A wall clock that is put forward by a day ends no wait."""
        page = open_page()
        show(page, LOGIN, **REFUSED, retry_after=900)
        page.evaluate("""() => {
            const tomorrow = Date.now() + 86_400_000;
            Date.now = () => tomorrow;
            dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }));
        }""")
        assert page.get_by_role("button", name="Sign in").is_disabled()

    def test_counts_without_a_form(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """On a page that has no form it counts down all the same."""
        page = frozen(open_page())
        show(page, ERROR, title="Wait", message="Too many.", retry_after=30)
        page.clock.run_for(30_000)
        expect(page.locator("#notice")).to_have_text("You can try again now.", use_inner_text=True)


class TestForEverybody:
    """Labels, contrast and small screens, in every state."""

    def test_fields_say_what_they_are(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """The fields are labelled, known to password managers, and tied to the message."""
        page = open_page()
        show(page, LOGIN, **REFUSED, retry_after=None)
        name, password = (
            page.get_by_label("Username, e-mail or phone"),
            page.get_by_label("Password"),
        )
        expect(name).to_have_attribute("autocomplete", "username")
        expect(password).to_have_attribute("autocomplete", "current-password")
        expect(password).to_have_accessible_description("Too many attempts.")
        expect(page.locator("form")).to_have_attribute("method", "post")

    @pytest.mark.parametrize("state", STATES)
    def test_text_can_be_read(
        self, open_page: Callable[..., Page], show: Callable[..., None], state: str
    ) -> None:
        """Every text has WCAG AA's contrast of 4.5 in the light and in the dark."""
        template, context = STATES[state]
        for scheme in ("light", "dark"):
            page = open_page(color_scheme=scheme)
            show(page, template, **context)
            assert page.evaluate(CONTRAST) == []

    @pytest.mark.parametrize("state", STATES)
    def test_fits_small_screens_and_large_text(
        self, open_page: Callable[..., Page], show: Callable[..., None], state: str
    ) -> None:
        """Nothing scrolls sideways at 320 px, nor with letters of twice the size."""
        template, context = STATES[state]
        page = open_page(viewport={"width": 320, "height": 640})
        show(page, template, **context)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        page.set_viewport_size({"width": 640, "height": 640})
        page.evaluate("document.documentElement.style.fontSize = '200%'")
        assert page.evaluate("document.documentElement.scrollWidth") <= 640

    def test_typed_text_stays_text(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """A name made of markup is shown in the field as it was typed."""
        page = open_page()
        typed = '"><script>alert(1)</script>'
        show(page, LOGIN, **{**REFUSED, "identifier": typed}, retry_after=None)
        expect(page.get_by_label("Username, e-mail or phone")).to_have_value(typed)
