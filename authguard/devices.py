"""
Known devices: a signed cookie that a full sign-in leaves, and that opens a lane of its own.

After OWASP's device cookies: an attacker who fills an account's log does not lock its owner out,
since the owner's browser counts by itself. The cookie proves nothing but that: it never signs in.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final

from itsdangerous import BadData, URLSafeTimedSerializer

from authguard.identity.pseudonyms import Pseudonyms, check_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEVICE_LIFE_S", "DeviceCookies"]

#: A cookie's life in seconds: a year after the last full sign-in. Browsers keep 400 days at most.
DEVICE_LIFE_S: Final = 365 * 86_400

#: Accounts that one browser can be known to.
_MOST: Final = 8

#: Longest cookie that is looked at: eight entries fit twice.
_LONGEST: Final = 2_048


class DeviceCookies:
    """
    Makes and reads the cookies.

    Args:
        secret: The guard's; with several, the newest signs and all are believed.

    Raises:
        ConfigurationError: AG011, for a secret that is none.
    """

    def __init__(self, secret: str | bytes | Sequence[str | bytes]) -> None:
        keys = check_secrets(secret, "secret")
        self._names = tuple(Pseudonyms(key) for key in keys)
        # itsdangerous wants the newest last.
        self._signer = URLSafeTimedSerializer(list(reversed(keys)), salt="authguard device v1")

    def issue(self, cookie: str | None, *, account: str, stamp: str, keep: str | None) -> str:
        """
        Make the cookie of a browser that has signed in fully.

        Args:
            cookie: The one it brought; other accounts' entries stay.
            account: The account's key.
            stamp: The account's device stamp; the cookie is worth nothing once it changes.
            keep: The device's id so far, if it was known and is not worn out.
        """
        ours = self._tag(self._names[0], account, stamp)
        all_of_ours = {self._tag(each, account, stamp) for each in self._names}
        others = [entry for entry in self._entries(cookie) if entry[0] not in all_of_ours]
        device = keep or secrets.token_urlsafe(16)
        return str(self._signer.dumps([[ours, device], *others[: _MOST - 1]]))

    def read(self, cookie: str | None, *, account: str, stamp: str) -> str | None:
        """
        Give the id of the device if the cookie is this account's, signed by us, and not revoked.

        Args:
            cookie: As the browser sent it.
            account: The account's key.
            stamp: The account's device stamp.
        """
        ours = {self._tag(each, account, stamp) for each in self._names}
        return next((device for tag, device in self._entries(cookie) if tag in ours), None)

    def _entries(self, cookie: str | None) -> list[tuple[str, str]]:
        if not cookie or len(cookie) > _LONGEST:
            return []
        try:
            entries = self._signer.loads(cookie, max_age=DEVICE_LIFE_S)
        except BadData:
            return []
        return [(tag, device) for tag, device in entries]

    @staticmethod
    def _tag(names: Pseudonyms, account: str, stamp: str) -> str:
        # Whose device it is, without telling whose: a browser's owner may read its cookies.
        return urlsafe_b64encode(names.mac("device", account, stamp)[:12]).decode()
