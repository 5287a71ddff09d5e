"""The rounds that ended, and where each member stands in them, as far as the server knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lrdp.errors import NotVerified
from lrdp.federation.wire.questions import Here
from lrdp.integrity import Position, RoundReceipt, Session, Tags, Wire, endorse, genesis


@dataclass(frozen=True)
class Concluded:
    """A round that ended: where it began, its receipt, and the tags that prove it to those who took part."""

    position: Position
    receipt: RoundReceipt
    tags: bytes

    @property
    def names(self) -> tuple[str, ...]:
        return self.receipt.header.names

    @property
    def accepted(self) -> bool:
        """Whether so many accepted it that a client that was absent believes in it."""
        return len(self.receipt.accepts) >= self.position.session.parameters.quorum(len(self.names))


@dataclass(frozen=True, kw_only=True)
class Place:
    """``verified`` rounds of this history; ``tagged`` if it signed a tag for the next one too, and waits for the rest.

    ``blank`` members have no model of this history: they are shown it from the start.
    """

    verified: int = 0
    tagged: bool = False
    blank: bool = False

    @property
    def following(self) -> int:
        """How many rounds it will have verified once it has seen the tags that it waits for."""
        return self.verified + self.tagged


_UNKNOWN: Final = Place(blank=True)
"""Of whoever has not said where it stands, or stands in another history."""


def retold(session: Session, receipts: Sequence[RoundReceipt]) -> list[Concluded]:
    """The rounds that these are the receipts of, from the first on."""
    rounds, position = list[Concluded](), None
    for receipt in receipts:
        header = receipt.header
        position = position or genesis(session, header.model)
        tags = Wire(position).tags(Tags(tags=receipt.tags), header)
        rounds.append(Concluded(position, receipt, tags))
        position = position.after(header.digest, header.next_model)
    return rounds


class Chronicle:
    """One history of one session."""

    def __init__(self, rounds: Iterable[Concluded] = (), places: Mapping[str, Place] | None = None) -> None:
        self.rounds = list(rounds)
        self._places = dict(places or {})

    @property
    def places(self) -> Mapping[str, Place]:
        """Where each member stands that has said so."""
        return dict(self._places)

    def _place(self, name: str) -> Place:
        return self._places.get(name, _UNKNOWN)

    def greet(self, here: Here, tip: bytes) -> None:
        """A client said where it stands in the history that ``tip`` ends; its lost ACCEPT may come along."""
        tips = [*(ended.position.tip for ended in self.rounds), tip]
        if not (here.round < len(tips) and tips[here.round] == here.tip):
            self._places[here.name] = _UNKNOWN
            return
        before = self._place(here.name)
        if before.tagged and here.accept and here.round == before.following:
            self.accept(here.name, here.accept)
        still = before.tagged and before.verified == here.round  # else it has lost its tag
        self._places[here.name] = Place(verified=here.round, tagged=still)

    def forget(self, name: str) -> None:
        """Whoever declined may have lost its place. The tags that it waits for, it is still owed."""
        if not self._place(name).tagged:
            self._places.pop(name, None)

    def reached(self, name: str) -> None:
        """It has trained from the newest model, so it has that."""
        if not self._place(name).tagged:
            self._places[name] = Place(verified=len(self.rounds))

    def current(self, name: str) -> bool:
        """Whether it has the newest model, or will with the tags that it waits for."""
        place = self._place(name)
        return not place.blank and place.following == len(self.rounds)

    def can_follow(self, name: str) -> bool:
        """Whether the receipts that it would need all have their quorum."""
        return all(ended.accepted for ended in self._after(name))

    def waiting(self) -> list[str]:
        """Those who took part in the last round and have not accepted it yet."""
        return [name for name, place in self._places.items() if place.tagged and place.following == len(self.rounds)]

    def tags_for(self, name: str) -> bytes:
        """The tags that it waits for, if it does."""
        place = self._place(name)
        return self.rounds[place.verified].tags if place.tagged else b""

    def missed(self, name: str) -> tuple[bytes, ...]:
        """The receipts of the rounds that it did not take part in."""
        return tuple(ended.receipt.encode() for ended in self._after(name))

    def _after(self, name: str) -> list[Concluded]:
        return self.rounds[self._place(name).following :]

    def accept(self, name: str, data: bytes) -> None:
        """An ACCEPT of the round that this client owed one for; what does not hold is left out of the receipt."""
        place = self._place(name)
        if not place.tagged:
            return
        ended = self.rounds[place.verified]
        try:
            word = Wire(ended.position).read_accept(data)
        except NotVerified:
            return
        receipt = endorse(ended.position, ended.receipt, [word])
        if len(receipt.accepts) > len(ended.receipt.accepts):
            self.rounds[place.verified] = replace(ended, receipt=receipt)
            self._places[name] = Place(verified=place.following)

    def conclude(self, ended: Concluded) -> None:
        """One round more; whoever took part waits for its tags."""
        self._places |= dict.fromkeys(ended.names, Place(verified=len(self.rounds), tagged=True))
        self.rounds.append(ended)
