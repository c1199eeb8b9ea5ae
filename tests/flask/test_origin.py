"""Requests that another site's page makes a browser send: refused before anything is charged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.flask.conftest import Site

RIGHT = {"identifier": "vera", "password": "right vera"}

FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": ""},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
    {"Origin": "https://evil.test"},
    {"Origin": "http://localhost.evil.test"},
    {"Origin": "http://localhost:8080"},
    {"Origin": "http://localhost@evil.test"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://"},
    {"Origin": "http://[::1"},
    {"Origin": "http://localhost:99999"},
    {"Origin": "chrome-extension://localhost"},
]

OWN = [
    {},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "null"},
    {"Origin": "http://localhost"},
    {"Origin": "http://LOCALHOST:80"},
    {"Origin": "https://localhost"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_foreign_requests(site: Site, headers: dict[str, str]) -> None:
    """A cross-site form is 403, charges nobody and checks nothing."""
    answer = site.post(data=RIGHT, headers=headers)
    assert (answer.status_code, answer.mimetype) == (403, "text/html")
    assert site.spy.checks == []
    assert [site.used(), site.used("client")] == [0, 0]
    asked = site.post(data=RIGHT, headers=headers | {"Accept": "application/json"})
    assert (asked.status_code, asked.mimetype) == (403, "application/problem+json")


@pytest.mark.parametrize("headers", OWN)
def test_own_requests(site: Site, headers: dict[str, str]) -> None:
    """The app's own form, and a client that is no browser, pass."""
    assert site.post(data=RIGHT, headers=headers).status_code == 303


def test_port_and_host_of_the_request_count(site: Site) -> None:
    """The origin must be the very host and port that the request names."""
    headers = {"Host": "app.test:8443", "Origin": "https://app.test:8443"}
    assert site.post(data=RIGHT, headers=headers).status_code == 303
    headers["Origin"] = "https://app.test"
    assert site.post(data=RIGHT, headers=headers).status_code == 403


def test_nobody_is_signed_out_from_elsewhere(site: Site) -> None:
    """A cross-site sign-out is refused; the session stays."""
    browser = site.browser()
    browser.post("/auth/login", json=RIGHT)
    refused = browser.post("/auth/logout", headers={"Sec-Fetch-Site": "cross-site"})
    assert refused.status_code == 403
    assert browser.get("/auth/me").status_code == 200


def test_links_from_elsewhere_work(site: Site) -> None:
    """Reading is not refused: a link on another site may lead to the form."""
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://other.test"}
    assert site.browser().get("/auth/login", headers=headers).status_code == 200
