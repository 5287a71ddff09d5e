"""Charges that bought nothing, and why: each has a reason of its own, in its own round, or it was charged for nothing.

What a server asks for again in a round is answered with the same bytes. So in step, an update is lost only where

- somebody of its roster was struck once the sum was shown, and did not come back in time; or it was never shown, and
- its own guard or node died, or its key was lost, so that the round went on without it; or
- a registry replaced the one it was made under; or
- a sum failed, which made the server ask for others; one that its server took to its grave was seen by nobody.

An update for a buffer may wait for many rounds, and is lost with its owner's or the server's life, or with a key of its
owner's that no registry holds any more. The last one of each hospital may wait still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .evidence import Blow, Charge, Evidence, Published


@dataclass(frozen=True)
class Span:
    """From one number of verified rounds to another."""

    first: int
    last: int

    def meets(self, other: Span) -> bool:
        return self.first <= other.last and other.first <= self.last


def at(number: int) -> Span:
    return Span(number, number)


def of(blow: Blow) -> Span:
    return Span(blow.round, blow.until)


def unexplained(losses: Iterable[Span], reasons: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """The losses that no reason is left for, and the reasons that are left: each explains one loss that it meets."""
    left, without = sorted(reasons, key=lambda reason: reason.last), list[Span]()
    for loss in sorted(losses, key=lambda loss: loss.last):
        reason = next((each for each in left if each.meets(loss)), None)
        if reason is None:
            without.append(loss)
        else:
            left.remove(reason)
    return without, left


# ---------------------------------------------------------------------------------------------------- sums that failed
def failed(found: Evidence) -> list[Published]:
    """Sums that were shown and not proved."""
    proved = {receipt.signature for _, receipt in found.receipts}
    return [each for each in found.published if each.signature not in proved]


def lost_rosters(found: Evidence) -> set[tuple[int, tuple[str, ...]]]:
    """Those whose sums were shown, with updates that were never proved: by round, and who was in it."""
    gone = failed(found)
    proved = {id(each) for each in found.published} - {id(each) for each in gone}
    counted = {
        (name, digest) for each in found.published if id(each) in proved for name, (digest, _) in each.updates.items()
    }
    return {
        (each.round, each.names)
        for each in gone
        if any((name, digest) not in counted for name, (digest, _) in each.updates.items())
    }


def every_sum_that_failed_lost_somebody(found: Evidence) -> None:
    """One that was struck while the sum was out, or the server; and nobody's blow explains two."""
    shown = failed(found)
    for number in {each.round for each in shown}:
        rosters = [each.names for each in shown if each.round == number]
        struck = _blows_on(found, number, set[str]().union(*rosters)) + _blows_on(found, number, {""})
        assert len(rosters) <= struck, f"{len(rosters)} sums of round {number} failed, and {struck} were struck in it"


def every_roster_that_was_given_up_lost_a_member(found: Evidence) -> None:
    """A server's death alone costs nobody an update: the same roster is asked again, and has the same answers."""
    given_up = lost_rosters(found)
    for number in {number for number, _ in given_up}:
        rosters = [names for round_, names in given_up if round_ == number]
        struck = _blows_on(found, number, set[str]().union(*rosters))
        assert len(rosters) <= struck, f"{rosters} gave up updates that round {number} had shown, and {struck} were hit"
        for names in rosters:
            assert _blows_on(found, number, set(names)), f"{names} gave up updates for nothing in round {number}"


def _blows_on(found: Evidence, number: int, whom: set[str]) -> int:
    return sum(blow.hospital in whom and of(blow).meets(at(number)) for blow in found.blows)


# ------------------------------------------------------------------------------------------- updates that nobody saw
def every_update_that_nobody_saw_has_a_reason(found: Evidence, name: str) -> None:
    """And so has every charge without an update: the guard died while it trained."""
    charges = found.charges(name)
    shown = {each.updates[name][0] for each in found.published if name in each.names}
    spans = _spans(charges, in_step=not found.schedule.buffer)
    torn = [spans[charge.entry] for charge in charges if not charge.digest]
    waiting = charges[-1:] if found.schedule.buffer else []
    lost = [charge for charge in charges if charge.digest and charge.digest not in shown and charge not in waiting]
    unseen = [spans[charge.entry] for charge in lost]
    own = [blow for blow in found.blows if blow.hospital == name]
    guards = [of(blow) for blow in own if blow.kind == "guard"]
    without, left = unexplained([Span(each.first, each.last + 1) for each in torn], guards)
    assert not without, f"{name} was charged and made nothing in {without}, where its guard lived"
    others = [of(blow) for blow in own if blow.kind != "guard"]
    without, _ = unexplained(unseen, [*left, *others, *_reasons(found, name)])
    assert not without, f"{name} made updates in {without} that nobody saw, for no reason"


def _spans(charges: Sequence[Charge], *, in_step: bool) -> dict[int, Span]:
    """When each could be lost: in its round; from a buffer, at any time before the next one was charged."""
    ends = {charge.entry: following.round for charge, following in pairwise(charges)}
    return {
        charge.entry: Span(charge.round, charge.round if in_step else ends.get(charge.entry, 1 << 31))
        for charge in charges
    }


def _reasons(found: Evidence, name: str) -> list[Span]:
    """Besides what struck the hospital itself."""
    servers = [of(blow) for blow in found.blows if not blow.hospital]
    if found.schedule.buffer:
        return servers + [at(rounds) for rounds, _, whose in found.days if whose == name]
    replaced = [at(rounds) for rounds, _ in found.registries[1:]]
    return replaced + [at(each.round) for each in failed(found)] + _buried(found, servers)


def _buried(found: Evidence, servers: Sequence[Span]) -> list[Span]:
    """Rounds in which a server may have died with a sum that nobody had seen yet; others were lost by a second blow."""
    deaths = Counter(span.first for span in servers)
    others = {number: sum(_blows_on(found, number, {name}) for name in found.names) for number in deaths}
    return [at(number) for number, count in deaths.items() for _ in range(min(count, others[number]))]
