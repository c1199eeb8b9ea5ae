"""The ``AUTHGUARD_…`` settings: read once from ``app.config``, checked, then frozen."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from authguard.checks import LONGEST_DEADLINE_MS, LONGEST_MEMORY_MS, check_whole, shown
from authguard.errors import ConfigurationError
from authguard.flask.client_address import Proxies
from authguard.identity import check_secrets
from authguard.identity.addresses import read_networks, read_prefixes
from authguard.identity.forwarded import X_FORWARDED_FOR, is_field_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Settings", "by_its_key"]

_PREFIX: Final = "AUTHGUARD_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """
    The extension's settings; each field is the key ``AUTHGUARD_`` plus its name in capitals.

    A key that is None is as if it were left out: its default holds, so it is no way to say "off".

    Attributes:
        store_url: Where Valkey is, such as ``valkey://127.0.0.1:6379/0``; empty with a store that
            was made by hand.
        secret: Keys the pseudonyms in the store; at least 32 random bytes. Or a list of them, the
            newest first, while a new one takes an old one's place.
        policy: Path of a TOML file, or a mapping of the same shape; None is the default profile.
        deadline_ms: Longest time for one decision of the store.
        remember_refusals_ms: For how long this process repeats a refusal without asking the store,
            at most 1,000; 0: not at all.
        trusted_proxies: Networks whose forwarding header is believed, ``unix:`` for the other end
            of a UNIX socket; none by default.
        forwarded_header: The one header they set: ``X-Forwarded-For``, ``Forwarded``, or the name
            of one that holds a single address.
        allowlist: Networks whose limits by address don't apply; those by account do.
        denylist: Networks that are refused.
        prefixes: How many bits of an address count as one client and one network, each for IPv4
            and IPv6; None is ``{"client": (32, 64), "network": (24, 48)}``.
        hash_slots: Password hashes at a time; None is one for each CPU.
        login_redirect: Endpoint, or path on this host, shown after a form's sign-in; None is the
            blueprint's own ``/me``.
        base_url: Where the app is reached from outside, such as ``https://example.com``; links in
            messages begin with it. Needed by a blueprint with a notifier.
    """

    store_url: str = field(repr=False)  # may hold a password
    secret: str | bytes | Sequence[str | bytes] = field(repr=False)
    policy: str | Mapping[str, Any] | None = None
    deadline_ms: int = 100
    remember_refusals_ms: int = 1000
    trusted_proxies: Sequence[str] = ()
    forwarded_header: str = X_FORWARDED_FOR
    allowlist: Sequence[str] = ()
    denylist: Sequence[str] = ()
    prefixes: Mapping[str, tuple[int, int]] | None = None
    hash_slots: int | None = None
    login_redirect: str | None = None
    base_url: str | None = None

    @classmethod
    def read(cls, config: Mapping[str, Any], *, store: bool = False) -> Settings:
        """
        Read the settings of an app.

        Args:
            config: The app's ``config``.
            store: The store was made by hand, so there must be no address.

        Raises:
            ConfigurationError: AG010 to AG018, AG025, AG027, AG043, naming the key and the mend.
        """
        given = {key: config[key] for key in config if key.startswith(_PREFIX)}
        known = {f"{_PREFIX}{each.name.upper()}": each.name for each in fields(cls)}
        for key in sorted(given.keys() - known.keys()):
            raise ConfigurationError(
                "AG014", key, "there is no such setting", f"use one of {', '.join(sorted(known))}"
            )
        # A setting that is None is one that was not given.
        named = {known[key]: value for key, value in given.items() if value is not None}
        if store and "store_url" in named:
            _fail("AG010", "store_url", "stands beside AuthGuard(store=…)", "give one of the two")
        named.setdefault("store_url", "" if store else None)
        for code, name in (("AG010", "store_url"), ("AG011", "secret")):
            if not named.get(name) and not (store and name == "store_url"):
                _fail(code, name, "is missing", "set it in app.config before init_app")
        _check_texts(named)
        check_secrets(named["secret"], f"{_PREFIX}SECRET")
        _check_numbers(named)
        if "base_url" in named:
            _check_base_url(named["base_url"])
        read_prefixes(named.get("prefixes"), f"{_PREFIX}PREFIXES")
        for name in ("allowlist", "denylist"):
            read_networks(named.get(name, ()), f"{_PREFIX}{name.upper()}")
        settings = cls(**named)
        settings.proxies()
        return settings

    def proxies(self) -> Proxies:
        """
        Give the trusted proxies, read.

        Raises:
            ConfigurationError: AG017 or AG018, for what is no list of networks.
        """
        return Proxies.of(self.trusted_proxies, self.forwarded_header, f"{_PREFIX}TRUSTED_PROXIES")


@contextmanager
def by_its_key() -> Iterator[None]:
    """Have the error of an address that a guard can't use name the setting it stands in."""
    try:
        yield
    except ConfigurationError as error:
        if error.where != "store":
            raise
        where = f"{_PREFIX}STORE_URL"
        raise ConfigurationError(error.code, where, error.problem, error.mend) from None


def _fail(code: str, name: str, problem: str, mend: str) -> None:
    raise ConfigurationError(code, f"{_PREFIX}{name.upper()}", problem, mend)


def _check_texts(named: Mapping[str, Any]) -> None:
    if not isinstance(named["store_url"], str):
        _fail("AG010", "store_url", "is no text", "write valkey://HOST:PORT/DATABASE")
    if not isinstance(named.get("policy", ""), str | Mapping):
        _fail("AG015", "policy", "is neither a path nor a mapping", "name a TOML file")
    header = named.get("forwarded_header", X_FORWARDED_FOR)
    if not isinstance(header, str) or not is_field_name(header):
        _fail(
            "AG027",
            "forwarded_header",
            f"{shown(header)} is no name of a header",
            "name one, with dashes: 'X-Forwarded-For', 'Forwarded' or such as 'CF-Connecting-IP'",
        )
    target = named.get("login_redirect", "/")
    # "//host/" and "/\host" leave this host in a browser.
    if not isinstance(target, str) or not target or target[1:2] in ("/", "\\") or ":" in target:
        _fail(
            "AG016",
            "login_redirect",
            "is neither an endpoint nor a path on this host",
            "write an endpoint such as 'index', or a path such as '/home'",
        )


def _check_base_url(url: object) -> None:
    """Refuse what no link can begin with."""
    parts = None
    with suppress(ValueError):
        parts = urlsplit(url) if isinstance(url, str) else None
    if (
        parts is None
        or parts.scheme not in ("https", "http")
        or not parts.hostname
        or parts.username is not None
        or parts.query
        or parts.fragment
        or any(character.isspace() for character in str(url))
    ):
        _fail(
            "AG043",
            "base_url",
            "is no address that a link can begin with",
            "write scheme and host, and the path the app is under if there is one:"
            " 'https://example.com'",
        )


def _check_numbers(named: Mapping[str, Any]) -> None:
    for name, least, most, unit in (
        ("deadline_ms", 1, LONGEST_DEADLINE_MS, "milliseconds"),
        ("hash_slots", 1, None, "hashes at a time"),
        ("remember_refusals_ms", 0, LONGEST_MEMORY_MS, "milliseconds"),
    ):
        where = f"{_PREFIX}{name.upper()}"
        check_whole(named.get(name, 1), where, least, most, unit=unit, off=least == 0)
