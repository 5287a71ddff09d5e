"""What a server tries when a sum was published and not proved, so that nobody is shown two sums of the same updates.

The same roster is tried again, with the same updates, which costs nothing. Where somebody of it is gone, all others are
asked for new updates, which cost what an update costs: with the old ones, the difference of the two sums would be the
update of whoever left. Clients hold to this themselves (``integrity.repeats``); a server that does not is declined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from lrdp.integrity import Roster
from lrdp.ledger import Retries
from lrdp.screen import visible

MOST_FAILURES: Final = 3
"""How often a roster is tried before those who left it unproved are left out."""


@dataclass(frozen=True, kw_only=True)
class ShownSum:
    """A roster whose sum was published, with the renewal of its updates, and what came of it."""

    roster: Roster
    renewal: int
    failures: int = 0
    silent: tuple[str, ...] = ()

    def once_more(self) -> ShownSum:
        """As it is for a server that is started again: what kept it waiting may be mended, so it is tried once more."""
        return replace(self, failures=min(self.failures, MOST_FAILURES - 1))


class Repetitions:
    """The rosters of one round whose sums were published, and the renewal of the updates in each."""

    def __init__(self, retries: Retries, before: Iterable[ShownSum] = ()) -> None:
        known = tuple(before)
        self._retries, self._fewest = retries, 0
        self._renewals = {one.roster: one.renewal for one in known}
        self._failures = Counter({one.roster: one.failures for one in known if one.failures})
        self._silent = {one.roster: set(one.silent) for one in known if one.failures}

    def shown(self) -> tuple[ShownSum, ...]:
        """Every roster whose sum is out, in order: what must not be forgotten while the round lasts."""
        return tuple(
            ShownSum(
                roster=roster,
                renewal=renewal,
                failures=self._failures[roster],
                silent=tuple(sorted(self._silent.get(roster, ()))),
            )
            for roster, renewal in self._renewals.items()
        )

    def as_if_failed(self, roster: Roster) -> Repetitions:
        """The same after one more failure, for which nobody is to blame: as a server that died meanwhile finds it."""
        after = Repetitions(self._retries, self.shown())
        after.fail(roster, self._silent.get(roster, ()))
        return after

    def renew(self) -> None:
        """Ask for new updates although no sum is out: somebody cannot show again what it made."""
        self._fewest = 1 + max(self._renewals.values(), default=self._fewest)

    def publish(self, roster: Roster) -> None:
        """The sum over ``roster`` is out."""
        self._renewals.setdefault(roster, self.renewal(roster))

    def fail(self, roster: Roster, silent: Iterable[str]) -> None:
        """It was not proved; ``silent`` are those who signed nothing."""
        self._failures[roster] += 1
        self._silent[roster] = set(silent)

    def bury(self, roster: Roster, lost: Iterable[str]) -> None:
        """These do not show their updates again, for good: the sum over ``roster``, if one is out, is never proved."""
        if self.published(roster):
            self._failures[roster] = MOST_FAILURES
            self._silent[roster] = set(lost)

    def published(self, roster: Roster) -> bool:
        """Whether its sum is out."""
        return roster in self._renewals

    def allow(self, roster: Roster, invited: Roster) -> bool:
        """Whether all would stand by a sum over ``roster``: one is repeated whole and on purpose, or not at all."""
        if self._retries is Retries.SMALLER_ROSTER:
            return True
        return roster == invited if self.published(invited) else not self.published(roster)

    def may_be(self, roster: Sequence[str], chosen: Sequence[str]) -> bool:
        """Whether those left of ``chosen`` make a round: a roster whose sum is out is tried again as a whole."""
        left, whole = tuple(sorted(roster)), tuple(sorted(chosen))
        return left == whole or self._retries is Retries.SMALLER_ROSTER or not self.published(whole)

    def renewal(self, roster: Roster) -> int:
        """Which updates of this round a roster is asked for: those it showed, or some that nobody has shown."""
        if self._retries is Retries.SMALLER_ROSTER:
            return 0
        return self._renewals.get(roster, max(self._fewest, 1 + max(self._renewals.values(), default=-1)))

    def again(self, present: Collection[str]) -> Roster | None:
        """The last roster that can be tried again with those who are there, at no cost."""
        for roster in reversed(self._renewals):
            left = tuple(name for name in roster if self._stays(name, roster, present))
            if left == roster or (self._retries is Retries.SMALLER_ROSTER and left):
                return left
        return None

    def _stays(self, name: str, roster: Roster, present: Collection[str]) -> bool:
        gone = self._failures[roster] >= self._patience and name in self._silent[roster]
        return name in present and not gone

    def besides(self, names: Sequence[str], least: int) -> Sequence[str]:
        """Of whom another roster is made: all but those who kept one waiting too often, if they are enough.

        Where they are not, as many as possible over whom no sum is out: there, with new updates, all have a new chance.
        """
        able, doubtful = ([name for name in names if (name in self.hopeless) is kept] for kept in (False, True))
        if len(able) >= least:
            return able
        sizes = range(len(names), least - 1, -1)
        rosters = (tuple(sorted(some)) for size in sizes for some in combinations([*able, *doubtful], size))
        return next((roster for roster in rosters if not self.published(roster)), ())

    @property
    def lacking(self) -> str:
        """Whose updates a shown sum waits for, and what can be done; empty where none waits in vain."""
        if not self.hopeless:
            return ""
        return (
            f"a sum of this round is out and was not proved, and {visible(', '.join(sorted(self.hopeless)))} did not "
            f"show the updates in it again, so no other roster is left. Look into their logs, mend what they say, and "
            f"start again: the session goes on. If that is not possible, begin a new session from this model, in "
            f"another folder: docs/federation.md shows how."
        )

    @property
    def _patience(self) -> int:
        return 1 if self._retries is Retries.SMALLER_ROSTER else MOST_FAILURES

    @property
    def begun(self) -> bool:
        """Whether any sum of this round is out."""
        return bool(self._renewals)

    @property
    def unproved(self) -> bool:
        """Whether a roster is worth waiting for."""
        return any(count < MOST_FAILURES for count in self._failures.values())

    @property
    def hopeless(self) -> set[str]:
        """Those who kept a roster waiting so often that this round is made without them."""
        given_up = (names for roster, names in self._silent.items() if self._failures[roster] >= MOST_FAILURES)
        return set[str]().union(*given_up)
