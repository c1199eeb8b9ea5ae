"""Who is asking: from what a request claims to what the limits count by. Private."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from authguard.checks import check_function, is_unicode, shown
from authguard.errors import ConfigurationError, InvalidInput
from authguard.identity.accounts import AccountKey, Normaliser, normalise_account
from authguard.identity.addresses import (
    Address,
    Prefixes,
    client_address_of,
    counted_address,
    read_networks,
    read_prefixes,
)
from authguard.identity.destinations import Email, Phone, StandIn, read_destination
from authguard.identity.pseudonyms import Pseudonyms, check_secrets
from authguard.policy import ADDRESS_PARTS, NORMAL, priority_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from ipaddress import IPv4Address, IPv6Address

    from authguard.policy import Policy

__all__ = ["NO_ACCOUNT", "Claims", "Known", "NoAccount", "Subjects"]


class NoAccount:
    """The type of :data:`NO_ACCOUNT`."""

    def __repr__(self) -> str:
        return "NO_ACCOUNT"


#: How many clients a process remembers: a few hundred bytes each.
_CLIENTS: Final = 2_048

#: Longest text of an address that is remembered: a zone can make it as long as it likes.
_LONGEST_KEPT: Final = 64

_NOTHING: Final[frozenset[str]] = frozenset()

#: The request names no usable account: only limits by other parts are charged. For malformed
#: input, so that it costs its sender and nobody else.
NO_ACCOUNT: Final = NoAccount()


class Claims(NamedTuple):
    """
    What a request says of itself; the attributes are the arguments of ``Guard.attempt``.

    Attributes:
        account: The claimed account.
        client: The client's address.
        destination: Where a message would go.
        device: The id of a known device of this account.
        challenge: The id of the challenge that a code answers.
        purpose: What a code is for.
        priority: How important it is, as a policy's limits name it; None: ``normal``.
        tier: The account's tier; None: what the app's function says.
    """

    account: str | NoAccount | None = None
    client: str | IPv4Address | IPv6Address | None = None
    destination: str | Email | Phone | StandIn | None = None
    device: str | None = None
    challenge: str | None = None
    purpose: str | None = None
    priority: str | None = None
    tier: str | None = None


class Known(NamedTuple):
    """
    What is known of one request.

    Attributes:
        pseudonyms: By secret, newest first: each subject's pseudonym.
        account: The account's key, if one is named.
        allowlisted: The client is on the allowlist.
        denylisted: The client is on the denylist.
        tier: The account's tier, where the action's limits tell tiers apart.
    """

    pseudonyms: tuple[dict[str, bytes], ...]
    account: AccountKey | None = None
    allowlisted: bool = False
    denylisted: bool = False
    tier: str | None = None

    @property
    def subjects(self) -> frozenset[str]:
        """What can be counted by."""
        return frozenset(self.pseudonyms[0])

    def without_device(self) -> Known:
        """Forget the device: it is worn out."""
        pseudonyms = tuple(
            {part: each for part, each in of.items() if part != "device"} for of in self.pseudonyms
        )
        return self._replace(pseudonyms=pseudonyms)

    @property
    def client_tag(self) -> bytes | None:
        """Three bytes that name the client in an entry; None if it is not known."""
        client = self.pseudonyms[0].get("client")
        return None if client is None else client[:3]


class _Client(NamedTuple):
    """
    What is known of a client's address.

    Attributes:
        pseudonyms: By secret: those of the client, its network, and others cut from the address.
        allowlisted: It is on the allowlist.
        denylisted: It, or the address it carries, is on the denylist.
    """

    pseudonyms: tuple[dict[str, bytes], ...] = ()
    allowlisted: bool = False
    denylisted: bool = False


class Subjects:
    """
    Reads what requests claim; the arguments are those of :class:`authguard.Guard`.

    Raises:
        ConfigurationError: AG011, AG017, AG018, AG025 or AG028, naming the setting and the mend.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        *,
        secret: str | bytes | Sequence[str | bytes],
        normalise: Callable[[str], str] | None,
        resolve: Callable[[str], str | None] | None,
        tier: Callable[[str], str | None] | None,
        prefixes: Mapping[str, tuple[int, int]] | None,
        allowlist: Sequence[str],
        denylist: Sequence[str],
    ) -> None:
        self.pseudonyms = tuple(Pseudonyms(key) for key in check_secrets(secret, "secret"))
        self.normalise = _normaliser(normalise)
        if resolve is not None:
            check_function(resolve, "resolve")
        if tier is not None:
            check_function(tier, "tier")
        self._resolve = resolve
        self.tier = tier
        self._tiers = frozenset(name for each in policies.values() for name in each.tiers)
        self._allowlist = read_networks(allowlist, "allowlist")
        self._denylist = read_networks(denylist, "denylist")
        lengths = read_prefixes(prefixes, "prefixes")
        self._cuts = {action: _cuts(policy, lengths) for action, policy in policies.items()}
        #: A client comes again and again; the last so many are remembered.
        self._of_client = lru_cache(_CLIENTS)(self._read_client)

    def account_key(self, account: object) -> AccountKey:
        """See :meth:`authguard.Guard.account_key`."""
        if isinstance(account, AccountKey):
            return account
        name = self.normalise(account)  # refused here, before the app's look-up sees it
        key = None if self._resolve is None else self._resolve(cast("str", account))
        return AccountKey.of_normalised(name) if key is None else AccountKey.of_app(key)

    def known(
        self, policy: Policy, claims: Claims, *, partial: bool = False, listed: bool = True
    ) -> Known:
        """
        Read what is given.

        Args:
            policy: The action's policy.
            claims: What the request says.
            partial: Not all that the policy's limits count by must be given.
            listed: Whether the two lists count, and one priority; an operator clears what stands,
                listed or not, and of every priority.

        Raises:
            InvalidInput: Something can't be used, or is missing.
        """
        needed = _NOTHING if partial else policy.parts
        client = _Client()
        if claims.client is not None or not needed.isdisjoint(ADDRESS_PARTS):
            client = self._client(claims.client, policy.action)
            if listed and client.denylisted:
                return Known(({},), denylisted=True)  # before the app's look-up is asked
        key, values = self._values(policy, claims, needed, listed=listed)
        pseudonyms = []
        for at, each in enumerate(self.pseudonyms):
            of = {**client.pseudonyms[at]} if client.pseudonyms else {}
            for subject, (part, value) in values.items():
                of[subject] = each.of(part, value)
            pseudonyms.append(of)
        tier = self._tier_of(key, claims.tier) if policy.tiers else None
        return Known(tuple(pseudonyms), key, listed and client.allowlisted, tier=tier)

    def _values(
        self, policy: Policy, claims: Claims, needed: frozenset[str], *, listed: bool
    ) -> tuple[AccountKey | None, dict[str, tuple[str, str]]]:
        """Read what is claimed besides the address: the account's key; each subject's value."""
        values: dict[str, tuple[str, str]] = {}
        if "global" in policy.parts:
            values["global"] = ("global", "")
        key = None
        account = claims.account
        if not isinstance(account, NoAccount) and (account is not None or "account" in needed):
            key = self.account_key(account)
            values["account"] = ("account", key)
        if claims.device is not None:
            values["device"] = ("device", _text(claims.device, "device"))
        if claims.challenge is not None:
            values["challenge"] = ("challenge", _text(claims.challenge, "challenge"))
        if claims.purpose is not None:
            values["purpose"] = ("purpose", _text(claims.purpose, "purpose"))
        if claims.destination is not None:
            values.update(_of_destination(claims.destination))
        if claims.priority is not None or policy.priorities:
            values.update(_of_priority(policy, claims.priority, every=not listed))
        return key, values

    def _client(self, client: object, action: str) -> _Client:
        """Read an address for an action, or remember it."""
        if isinstance(client, Address) or (
            isinstance(client, str) and len(client) <= _LONGEST_KEPT
        ):
            return self._of_client(client, action)
        return self._read_client(client, action)

    def _read_client(self, client: object, action: str) -> _Client:
        """Read an address for an action."""
        ip = client_address_of(client)
        counted = counted_address(ip)
        values = {
            subject: (part, prefixes.of(counted)) for subject, part, prefixes in self._cuts[action]
        }
        return _Client(
            tuple(
                {subject: each.of(part, value) for subject, (part, value) in values.items()}
                for each in self.pseudonyms
            ),
            allowlisted=ip in self._allowlist,
            denylisted=ip in self._denylist or counted in self._denylist,
        )

    def _tier_of(self, account: AccountKey | None, given: str | None) -> str | None:
        """Give the account's tier."""
        if account is None:
            return None
        tier = self.tier(account) if given is None and self.tier is not None else given
        if tier is not None and (not isinstance(tier, str) or tier not in self._tiers):
            raise ConfigurationError(
                "AG051",
                "tier",
                f"no limit has a tier {shown(tier)}",
                f"take one of {', '.join(sorted(self._tiers))}, or None for the limits' own",
            )
        return tier


def _of_priority(
    policy: Policy, priority: str | None, *, every: bool
) -> dict[str, tuple[str, str]]:
    """Say which of the limits that have a priority apply; to an operator, all of them."""
    known = isinstance(priority, str) and priority in {NORMAL, *policy.priorities}
    if priority is not None and not known:
        raise ConfigurationError(
            "AG052",
            "priority",
            f"no limit of [{policy.action}] has a priority {shown(priority)}",
            f"take one of {', '.join(sorted({NORMAL, *policy.priorities}))}",
        )
    if not policy.priorities:
        return {}
    names = policy.priorities if every else {priority or NORMAL}
    return {priority_subject(name): ("priority", name) for name in names}


def _text(value: object, part: str) -> str:
    if not isinstance(value, str) or not is_unicode(value):
        raise InvalidInput(part, "must be text of valid Unicode")
    return value


def _of_destination(destination: object) -> dict[str, tuple[str, str]]:
    """List what a destination can be counted by; the channel itself only says what applies."""
    to = read_destination(destination) if isinstance(destination, str) else destination
    if isinstance(to, StandIn):
        return {"destination": ("stand-in", to.name)}
    if isinstance(to, Email):
        return {"destination": ("destination", to.mailbox), "email": ("channel", "email")}
    if not isinstance(to, Phone):
        raise InvalidInput("destination", "must be an e-mail address or a phone number")
    known = {
        "destination": ("destination", to.number),
        "number_range": ("number_range", to.number_range),
        "sms": ("channel", "sms"),
    }
    return known if to.country is None else known | {"country": ("country", to.country)}


def _normaliser(normalise: Callable[[str], str] | None) -> Normaliser:
    if normalise is None:
        return normalise_account
    check_function(normalise, "normalise")
    return normalise if isinstance(normalise, Normaliser) else Normaliser(normalise)


def _cuts(policy: Policy, lengths: Mapping[str, Prefixes]) -> list[tuple[str, str, Prefixes]]:
    """List all that an address gives for a policy: subject, part, and its lengths."""
    cuts = {part: (part, part, lengths[part]) for part in ADDRESS_PARTS}
    for limit in policy.limits:
        for part, subject in zip(limit.by, limit.subjects, strict=True):
            if subject != part:
                own = lengths[part]
                prefixes = Prefixes(limit.ipv4_prefix or own.ipv4, limit.ipv6_prefix or own.ipv6)
                cuts[subject] = (subject, part, prefixes)
    return list(cuts.values())
