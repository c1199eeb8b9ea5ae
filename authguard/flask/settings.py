"""The ``AUTHGUARD_…`` settings: read once from ``app.config``, checked, then frozen."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from authguard.checks import is_whole
from authguard.errors import ConfigurationError
from authguard.identity import check_secret

__all__ = ["Network", "Settings"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PREFIX: Final = "AUTHGUARD_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """
    The extension's settings; each field is the key ``AUTHGUARD_`` plus its name in capitals.

    Attributes:
        store_url: Where Valkey is, such as ``valkey://127.0.0.1:6379/0``.
        secret: Keys the pseudonyms in the store; at least 32 random bytes.
        policy: Path of a TOML file, or a mapping of the same shape; None is the default profile.
        deadline_ms: Longest time for one decision of the store.
        trusted_proxies: Networks whose ``X-Forwarded-For`` is believed; none by default.
        hash_slots: Password hashes at a time; None is one for each CPU.
        login_redirect: Endpoint, or path on this host, shown after a form's sign-in; None is the
            blueprint's own ``/me``.
    """

    store_url: str = field(repr=False)  # may hold a password
    secret: str | bytes = field(repr=False)
    policy: str | Mapping[str, Any] | None = None
    deadline_ms: int = 100
    trusted_proxies: tuple[Network, ...] = ()
    hash_slots: int | None = None
    login_redirect: str | None = None

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Settings:
        """
        Read the settings of an app.

        Args:
            config: The app's ``config``.

        Raises:
            ConfigurationError: AG010 to AG018, naming the key and the mend.
        """
        given = {key: config[key] for key in config if key.startswith(_PREFIX)}
        known = {f"{_PREFIX}{each.name.upper()}": each.name for each in fields(cls)}
        for key in sorted(given.keys() - known.keys()):
            raise ConfigurationError(
                "AG014", key, "there is no such setting", f"use one of {', '.join(sorted(known))}"
            )
        # A setting that is None is one that was not given.
        named = {known[key]: value for key, value in given.items() if value is not None}
        for code, name in (("AG010", "store_url"), ("AG011", "secret")):
            if not named.get(name):
                _fail(code, name, "is missing", "set it in app.config before init_app")
        _check_texts(named)
        check_secret(named["secret"], f"{_PREFIX}SECRET")
        _check_numbers(named)
        named["trusted_proxies"] = _networks(named.get("trusted_proxies", ()))
        return cls(**named)


def _fail(code: str, name: str, problem: str, mend: str) -> None:
    raise ConfigurationError(code, f"{_PREFIX}{name.upper()}", problem, mend)


def _check_texts(named: Mapping[str, Any]) -> None:
    if not isinstance(named["store_url"], str):
        _fail("AG010", "store_url", "is no text", "write valkey://HOST:PORT/DATABASE")
    if not isinstance(named.get("policy", ""), str | Mapping):
        _fail("AG015", "policy", "is neither a path nor a mapping", "name a TOML file")
    target = named.get("login_redirect", "/")
    # "//host/" and "/\host" leave this host in a browser.
    if not isinstance(target, str) or not target or target[1:2] in ("/", "\\") or ":" in target:
        _fail(
            "AG016",
            "login_redirect",
            "is neither an endpoint nor a path on this host",
            "write an endpoint such as 'index', or a path such as '/home'",
        )


def _check_numbers(named: Mapping[str, Any]) -> None:
    for name, unit in (("deadline_ms", "milliseconds"), ("hash_slots", "hashes at a time")):
        value = named.get(name, 1)
        if not is_whole(value, 1):
            _fail("AG012", name, f"{value!r} is no number of {unit}", "write a whole number from 1")


def _networks(value: object) -> tuple[Network, ...]:
    if not isinstance(value, list | tuple):
        _fail("AG017", "trusted_proxies", "is no list", "write a list such as ['10.0.0.1/32']")
        return ()
    return tuple(_network(item) for item in value)


def _network(item: object) -> Network:
    where = f"{_PREFIX}TRUSTED_PROXIES"
    mend = "list the addresses of your own proxies, such as '10.0.0.1/32'"
    if not isinstance(item, str):
        raise ConfigurationError("AG017", where, f"{item!r} is no text", mend)
    try:
        network = ipaddress.ip_network("::/0" if item.strip() == "*" else item.strip())
    except ValueError as error:
        raise ConfigurationError("AG017", where, f"{item!r} is no network: {error}", mend) from None
    if network.prefixlen == 0:
        raise ConfigurationError(
            "AG018", where, f"{item!r} trusts everybody: any client could choose its address", mend
        )
    return network
