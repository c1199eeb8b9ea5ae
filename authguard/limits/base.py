"""What all algorithms share, and what is true of most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from authguard.checks import shown
from authguard.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Base"]


class Base:
    """
    One algorithm with its numbers; each is a frozen value, checked once when it is made.

    Attributes:
        algorithm: Its name, and that of its Lua.
        lockout_ms: The lengths of its lockouts; ``()`` where there are none.
        can_scale: Whether its limit can follow the load.
        limit: How many it admits: what a verdict shows.
        window_ms: For how long a place stays taken.
    """

    __slots__ = ()

    algorithm: ClassVar[str]
    can_scale: ClassVar[bool] = False
    if TYPE_CHECKING:

        @property
        def limit(self) -> int: ...  # noqa: D102
        @property
        def window_ms(self) -> int: ...  # noqa: D102
        @property
        def lockout_ms(self) -> tuple[int, ...]: ...  # noqa: D102

    def largest_cost(self, *, reserved: bool = False) -> int | None:  # noqa: ARG002 (some do)
        """
        Give the most places one attempt could ever take; None where a cost makes no difference.

        Args:
            reserved: The last places are not the attempt's to use.
        """
        return None

    def numbers(self) -> list[Any]:
        """Give the numbers that a tier or an override replaces: the first of :meth:`spec`."""
        return []

    def numbers_of(self, to: object, where: str) -> list[Any]:
        """
        Read other numbers for it: as text in its own notation, or as another of its kind.

        Raises:
            ConfigurationError: AG005 or AG006.
        """
        if isinstance(to, type(self)):
            other = to
        elif isinstance(to, str):
            other = self._like(to, where)
        else:
            raise ConfigurationError(
                "AG005", where, f"{shown(to)} is no {self.algorithm}", "write it as the limit's own"
            )
        if other.same_kind() != self.same_kind():
            raise ConfigurationError(
                "AG006",
                where,
                f"{shown(to)} differs from the limit in more than its count",
                "keep the limit's own period, time zone, and part that it tells apart",
            )
        return other.numbers()

    def same_kind(self) -> object:
        """Give what no tier and no override can change, since the store keeps it otherwise."""
        return None

    def spec(
        self,
        by: Sequence[str],  # noqa: ARG002 (some do)
        *,
        forgiving: bool = True,  # noqa: ARG002
        reserved: bool = False,  # noqa: ARG002
    ) -> list[Any]:
        """
        Describe it to its Lua: ``own``, in the header of its file.

        Args:
            by: What the limit counts by.
            forgiving: A settle is a proven success.
            reserved: The last places are not the attempt's to use.
        """
        return self.numbers()

    def _like(self, text: str, where: str) -> Base:  # noqa: ARG002 (most do)
        """Make another of the kind from the text of its rate, with the same options."""
        raise ConfigurationError(
            "AG005", where, f"a {self.algorithm} has no other numbers", "leave it out"
        )
