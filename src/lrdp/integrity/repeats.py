"""In which sums one update may stand, so that no two sums differ by the updates of a few.

Whoever sees Σ over {a, b, c, d} and Σ over {a, b, c} of the same updates sees the update of d. So a client keeps, for
the round it is in, which update it showed in which roster: one update for one roster, and one roster for one update.

Guarantees: of any two sums in which honest clients stand, the honest parts are equal or have no update in common.
Updates are numbered by their owner, in the order in which they were noised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from lrdp.codec import NAME, NUMBER, Format, many, packed
from lrdp.errors import InvalidInput
from lrdp.integrity.encoding import Encoded, part_of
from lrdp.integrity.verdicts import Verdict, rejection

Roster = tuple[str, ...]
"""The names whose updates are in a sum."""
Repeats = Callable[[Roster, Roster], bool]
"""Whether an update that was shown in the second roster may be shown in the first."""


def same_roster(now: Roster, before: Roster) -> bool:
    """The default: the sum is the same, so nobody learns anything from it."""
    return now == before


def smaller_roster(now: Roster, before: Roster) -> bool:
    """For whoever chose it: the difference shows everybody the (noised) updates of those who were left out.

    >>> smaller_roster(("a", "b"), before=("a", "b", "c")), same_roster(("a", "b"), before=("a", "b", "c"))
    (True, False)
    """
    return set(now) <= set(before)


_GONE: Final = 0  # no number of an update: these count from 1


@dataclass(frozen=True, kw_only=True)
class Shown(Encoded):
    """An update, and the roster of a sum that it is part of."""

    update: int
    roster: Roster

    FORMAT: ClassVar[Format[bytes]] = packed(update=NUMBER, roster=many(NAME))


@dataclass(frozen=True, kw_only=True)
class Stands(Encoded):
    """What this round's updates were shown in; those up to ``spent`` are from earlier rounds, and not shown again."""

    spent: int = 0
    revealed: int = 0
    shown: tuple[Shown, ...] = ()

    FORMAT: ClassVar[Format[bytes]] = packed(b"STANDS/v2", spent=NUMBER, revealed=NUMBER, shown=many(part_of(Shown)))

    def __post_init__(self) -> None:
        if not self.revealed >= self.spent >= 0:
            raise InvalidInput(f"updates up to {self.spent} are spent, so {self.revealed} cannot be the last shown.")

    def reveal(self, update: int, invited: Roster, repeats: Repeats) -> Stands:
        """What stands once the update leaves for a round of some or all of ``invited``.

        It leaves for no roster that was shown another: a server that forgot it would publish the sum of both.
        """
        if not update > self.spent:
            raise rejection(Verdict.UPDATE_SPENT, f"update {update} is from an earlier round")
        if not all(repeats(invited, one.roster) for one in self.shown if one.update == update):
            raise rejection(Verdict.UPDATE_SPENT, f"update {update} was shown in another roster")
        if any(one.roster == invited for one in self.shown if one.update != update):
            raise rejection(Verdict.UPDATE_SPENT, f"this roster was shown an update other than {update}")
        return replace(self, revealed=max(self.revealed, update))

    def show(self, update: int, roster: Roster, repeats: Repeats) -> Stands:
        """What stands once the update is part of a sum over exactly ``roster``."""
        kept = self.reveal(update, roster, repeats)
        fresh = Shown(update=update, roster=roster)
        return kept if fresh in self.shown else replace(kept, shown=(*self.shown, fresh))

    def in_other_books(self, last: int) -> Stands:
        """What stands once updates are numbered by other books, which end at ``last``: restored from a backup, or new.

        All that they hold counts as spent. What was shown is gone, and its number may soon be another's; the rosters
        remain, and see no second update.
        """
        return Stands(spent=last, revealed=last, shown=tuple(replace(one, update=_GONE) for one in self.shown))

    def require_open(self, invited: Roster) -> None:
        """Refuse a roster that was shown an update which is gone: whatever is made for it could not be shown."""
        if any(one.update == _GONE and one.roster == invited for one in self.shown):
            raise rejection(Verdict.UPDATE_SPENT, "this roster was shown an update that the ledger has lost since")

    def next_round(self) -> Stands:
        """What was revealed is spent with its round, verified or not."""
        return Stands(spent=self.revealed, revealed=self.revealed)


NOTHING_SHOWN = Stands()


def nothing_before(update: int) -> Stands:
    """For a client that does not know what it showed: every update up to this one counts as spent.

    >>> nothing_before(7).spent
    7
    """
    return Stands(spent=update, revealed=update)
