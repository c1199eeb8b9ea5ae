"""The package's pages in every state: the countdown's clock, and who can use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from flask import render_template
from playwright.sync_api import expect

from authguard.notify import Message
from demo_app.accounts import PEOPLE
from demo_app.app import create_app
from demo_app.database import Database
from demo_app.outbox import Sent, SqlOutbox
from demo_app.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page, Route

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

LOGIN, ERROR, ME, OTP_SEND, OTP_VERIFY, FORGOT, SENT, RESET, UNLOCK, DONE = (
    f"authguard/{name}.html"
    for name in (
        *("login", "error", "me", "otp_send", "otp_verify", "password_forgot", "sent"),
        *("password_reset", "unlock", "done"),
    )
)
HOME, OUTBOX = "demo/home.html", "demo/outbox.html"
REFUSED = {"identifier": "vera", "state": "refused", "message": "Too many attempts."}
READY = {"identifier": "", "state": "ready", "message": None, "retry_after": None}
FAILED = {"identifier": "vera", "state": "failed", "message": "No.", "retry_after": None}
LONG_NAME = "a-very-long-name-without-any-blank-in-it" * 6
CHANNELS = {"channels": [("sms", "Text message"), ("email", "E-mail")], "channel": "sms"}
CHALLENGE = {
    "challenge": "c" * 43,
    "digits": 6,
    "second_factor": False,
    "resend": {"after": 27, "identifier": "vera", "channel": "sms"},
}
LINK = f"http://site.test/auth/unlock?token={'t' * 86}"
MESSAGES = [
    Sent(
        Message("code", "sms", "+14155550103", "", "Code: 123456", code="123456"),
        "2026-11-30T16:44:23.124Z",
    ),
    Sent(
        Message("unlock", "email", LONG_NAME, LONG_NAME, f"Open\n{LINK}", token="t" * 86),
        "2026-11-30T16:44:23.123Z",
    ),
]
STATES = {
    "ready": (LOGIN, {**READY, "messages": True}),
    "failed": (LOGIN, {**FAILED, "identifier": LONG_NAME}),
    "refused": (LOGIN, {**REFUSED, "retry_after": 90_000}),
    "unavailable": (LOGIN, {**REFUSED, "state": "unavailable", "retry_after": 7}),
    "me": (ME, {"username": LONG_NAME}),
    "me-devices": (ME, {"username": "vera", "messages": True, "devices_forgotten": True}),
    "send": (OTP_SEND, {**READY, **CHANNELS}),
    "send-refused": (OTP_SEND, {**REFUSED, **CHANNELS, "retry_after": 90_000}),
    "verify": (OTP_VERIFY, {**READY, **CHALLENGE}),
    "verify-failed": (OTP_VERIFY, {**FAILED, **CHALLENGE, "second_factor": True}),
    "verify-refused": (OTP_VERIFY, {**REFUSED, **CHALLENGE, "retry_after": 600}),
    "forgot": (FORGOT, READY),
    "forgot-refused": (FORGOT, {**REFUSED, "retry_after": 60}),
    "sent": (SENT, {"retry_after": 60}),
    "reset": (RESET, {**READY, "token": "t" * 86}),
    "reset-failed": (RESET, {**FAILED, "token": "t" * 86}),
    "unlock": (UNLOCK, {**READY, "token": "t" * 86}),
    "unlock-failed": (UNLOCK, {**FAILED, "token": "t" * 86}),
    "done": (DONE, {"title": "Unlocked", "message": "Sign in now."}),
    "error": (ERROR, {"title": "Refused", "message": "From elsewhere.", "retry_after": None}),
    "error-wait": (ERROR, {"title": "Refused", "message": "Too many.", "retry_after": 30}),
    "home": (HOME, {"people": PEOPLE, "default_policy": True}),
    "outbox": (OUTBOX, {"sent": MESSAGES}),
    "outbox-empty": (OUTBOX, {"sent": []}),
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
def database(tmp_path: Path) -> str:
    """Make the demo's file, without accounts or messages."""
    path = str(tmp_path / "demo.sqlite")
    database = Database(path)
    database.create()
    database.close()
    return path


@pytest.fixture
def show(database: str) -> Callable[..., None]:
    """Show a template in a state of one's choice, under the pages' own security policy."""
    app = create_app(Settings("valkey://127.0.0.1:1/0", database))

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


class TestOutbox:
    """The demo's outbox: copying, and news without a reload."""

    def test_copies_codes_and_links(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """The buttons copy the code and the whole link, and say so."""
        page = open_page()
        page.add_init_script("""Object.defineProperty(navigator, "clipboard", {
            value: { writeText: async (text) => { window.copied = text; } } });""")
        show(page, OUTBOX, sent=MESSAGES)
        for what, text in (("the code", "123456"), ("the link", LINK)):
            page.get_by_role("button", name=f"Copy {what}").click()
            expect(page.get_by_role("button", name=f"Copied {what}")).to_be_visible()
            assert page.evaluate("copied") == text

    def test_without_script_code_and_link_are_there(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """Without JavaScript no button promises to copy; the code is text, the link a link."""
        page = open_page(java_script_enabled=False)
        show(page, OUTBOX, sent=MESSAGES)
        expect(page.get_by_role("button")).to_have_count(0)
        expect(page.get_by_text("123456", exact=True)).to_be_visible()
        link = page.get_by_role("link", name="Unlock sign-in")
        expect(link).to_have_attribute("href", LINK)
        expect(page.get_by_role("link", name="Reload")).to_be_visible()

    def test_tells_of_news(
        self, open_page: Callable[..., Page], show: Callable[..., None], database: str
    ) -> None:
        """A message that comes later is told of within seconds, and leads to the page anew."""
        page = frozen(open_page())
        show(page, OUTBOX, sent=[])
        status = page.get_by_role("status")
        with SqlOutbox(database) as outbox:
            for number, text in enumerate(("1 new message. Show it", "2 new messages. Show them")):
                outbox.send(Message("notice", "sms", "+14155550101", "", str(number)))
                page.clock.run_for(2_000)
                expect(status).to_have_text(text)
        expect(page).to_have_title("(2) Outbox | authguard demo")
        expect(page.get_by_role("heading", level=2)).to_have_text("No messages")
        expect(status.get_by_role("link")).to_have_attribute("href", "/page")

    def test_markup_in_messages_stays_text(
        self, open_page: Callable[..., Page], show: Callable[..., None]
    ) -> None:
        """A message made of markup is shown as it was written."""
        page = open_page()
        text = "<script>alert(1)</script>"
        sent = Sent(Message("notice", "email", text, text, text), MESSAGES[1].sent_at)
        show(page, OUTBOX, sent=[sent])
        expect(page.get_by_text(text)).to_have_count(3)


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
