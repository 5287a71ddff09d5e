"""The rounds that ended, the registries between them, and where each member stands, as far as the server knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from lrdp.errors import NotVerified
from lrdp.federation.wire.questions import Here
from lrdp.integrity import (
    HASH_SIZE,
    HistoryStep,
    Position,
    Registry,
    RoundReceipt,
    Session,
    Tags,
    Wire,
    endorse,
    genesis,
)


@dataclass(frozen=True)
class Concluded:
    """A round that ended: where it began, its receipt, and the tags that prove it to those who took part."""

    position: Position
    receipt: RoundReceipt
    tags: bytes
    moves_model: ClassVar[bool] = True

    @property
    def names(self) -> tuple[str, ...]:
        return self.receipt.header.names

    @property
    def quorum(self) -> int:
        """How many must accept it before an absent client believes in it."""
        return self.position.session.parameters.quorum(len(self.names))

    @property
    def accepted(self) -> bool:
        """Whether enough participants accepted it for an absent client to believe in it."""
        return len(self.receipt.accepts) >= self.quorum

    @property
    def needs_everybody(self) -> bool:
        """Whether it can do without nobody's ACCEPT: a single participant that leaves first takes the quorum along."""
        return not self.accepted and len(self.names) == self.quorum

    @property
    def owing(self) -> tuple[str, ...]:
        """Those who took part and have not accepted it yet, as far as the server knows."""
        given = {accept.name for accept in self.receipt.accepts}
        return tuple(name for name in self.names if name not in given)

    @property
    def after(self) -> Position:
        """Where the next step begins."""
        return self.position.after(self.receipt.header.digest, self.receipt.header.next_model)

    def encode(self) -> bytes:
        """As it is shown to whoever was absent, and as it is written down."""
        return self.receipt.encode()


@dataclass(frozen=True)
class Rotation:
    """A registry that replaced another, and where: the consortium's word needs nobody's consent."""

    position: Position
    registry: Registry
    accepted: ClassVar[bool] = True
    moves_model: ClassVar[bool] = False

    @property
    def after(self) -> Position:
        """Where the next step begins."""
        return self.position.rotated(self.registry)

    def encode(self) -> bytes:
        """As it is shown to everybody, and as it is written down."""
        return self.registry.encode()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A member verified ``verified`` steps of this history; ``tagged`` if it also signed a tag for the next one.

    It then waits for the other tags. ``blank`` members have no model of this history: they are shown it from the start.
    ``told`` is how many steps there were when it was last sent work, with those that it had missed.
    """

    verified: int = 0
    tagged: bool = False
    blank: bool = False
    told: int | None = None

    @property
    def following(self) -> int:
        """How many steps it will have verified once it has seen the tags that it waits for."""
        return self.verified + self.tagged


_UNKNOWN: Final = Place(blank=True)
"""For a member that has not said where it stands, or stands in another history."""


def retold(session: Session, steps: Sequence[HistoryStep]) -> list[Concluded | Rotation]:
    """The same steps, each at its place, from the first round on."""
    told = list[Concluded | Rotation]()
    for step in steps:
        if isinstance(step, Registry):
            told.append(Rotation(told[-1].after if told else genesis(session, bytes(HASH_SIZE)), step))
        else:
            position = told[-1].after if told else genesis(session, step.header.model)
            told.append(Concluded(position, step, Wire(position).tags(Tags(tags=step.tags), step.header)))
    return told


class Chronicle:
    """One history of one session."""

    def __init__(self, steps: Iterable[Concluded | Rotation] = (), places: Mapping[str, Place] | None = None) -> None:
        self.steps = list(steps)
        self._places = dict(places or {})
        self._further = dict[str, int]()

    @property
    def rounds(self) -> list[Concluded]:
        """Every round that was concluded."""
        return [step for step in self.steps if isinstance(step, Concluded)]

    @property
    def places(self) -> Mapping[str, Place]:
        """Where each member stands that has said so."""
        return dict(self._places)

    def _place(self, name: str) -> Place:
        return self._places.get(name, _UNKNOWN)

    def greet(self, here: Here, tip: bytes) -> None:
        """Note where a client says it stands in the history that ends at ``tip``; its lost ACCEPT may come along."""
        tips = [*(step.position.tip for step in self.steps), tip]
        verified = tips.index(here.tip) if here.tip in tips else -1
        before = self._place(here.name)
        self._further.pop(here.name, None)
        if verified < 0 and here.round > len(self.rounds):
            self._further[here.name] = here.round
        if verified < 0 or here.round != sum(step.moves_model for step in self.steps[:verified]):
            self._places[here.name] = replace(_UNKNOWN, told=before.told)
            return
        if before.tagged and here.accept and verified >= before.following:  # it may have seen a registry since
            self.accept(here.name, here.accept)
        still = before.tagged and before.verified == verified  # else it has lost its tag
        self._places[here.name] = Place(verified=verified, tagged=still, told=before.told)

    def further(self, names: Collection[str]) -> dict[str, int]:
        """Those who say that they have verified more rounds of the session than there are here, and how many."""
        return {name: self._further[name] for name in names if name in self._further}

    def forget(self, name: str) -> None:
        """Forget where it stands: whoever declined may have lost its place. It is still owed the tags it waits for."""
        if not self._place(name).tagged:
            self._places[name] = replace(_UNKNOWN, told=self._place(name).told)

    def tell(self, name: str) -> tuple[bytes, ...]:
        """What it has missed, which it is now sent with work."""
        self._places[name] = replace(self._place(name), told=len(self.steps))
        return self.missed(name)

    def reached(self, name: str) -> None:
        """It has done the work, so it has followed as far as it was told: others may have gone further since."""
        place = self._place(name)
        if not place.tagged:
            self._places[name] = replace(
                place, verified=len(self.steps) if place.told is None else place.told, blank=False
            )

    def current(self, name: str) -> bool:
        """Whether it has the newest model, or will with the tags that it waits for."""
        return not (self._place(name).blank or any(step.moves_model for step in self._after(name)))

    def can_follow(self, name: str) -> bool:
        """Whether the receipts that it would need all have their quorum."""
        return all(step.accepted for step in self._after(name))

    @property
    def unconfirmed(self) -> Concluded | None:
        """The first round without its quorum: whoever was not in it cannot follow."""
        return next((ended for ended in self.rounds if not ended.accepted), None)

    def waiting(self) -> list[str]:
        """Those who took part in the last round and have not accepted it yet."""
        return [name for name, place in self._places.items() if place.tagged and self.current(name)]

    def must_confirm(self, present: Collection[str], members: Collection[str]) -> bool:
        """Whether confirmations that are owed cannot wait for the next question to those who owe them.

        They cannot where one of those ``present`` was not in the round, and needs its receipt with a quorum. Where the
        round needs everybody's, any other of the ``members`` counts too: such a one may come, once somebody has left.
        """
        if self.unconfirmed is None or not self.waiting():
            return False
        concerned = members if self.rounds[-1].needs_everybody else present
        return any(not self.current(name) for name in concerned)

    def tags_for(self, name: str) -> bytes:
        """The tags that it waits for, if it does."""
        ended = self._awaited(name)
        return b"" if ended is None else ended.tags

    def _awaited(self, name: str) -> Concluded | None:
        """The round that it signed a tag in and has not accepted yet."""
        place = self._place(name)
        step = self.steps[place.verified] if place.tagged else None
        return step if isinstance(step, Concluded) else None

    def missed(self, name: str) -> tuple[bytes, ...]:
        """The receipts of the rounds that it did not take part in, and the registries that it has not seen."""
        return tuple(step.encode() for step in self._after(name))

    def _after(self, name: str) -> list[Concluded | Rotation]:
        return self.steps[self._place(name).following :]

    def accept(self, name: str, data: bytes) -> None:
        """Take the ACCEPT that this client owed for a round; one that does not hold is left out of the receipt."""
        place, ended = self._place(name), self._awaited(name)
        if ended is None:
            return
        try:
            word = Wire(ended.position).read_accept(data)
        except NotVerified:
            return
        receipt = endorse(ended.position, ended.receipt, [word])
        if len(receipt.accepts) > len(ended.receipt.accepts):
            self.steps[place.verified] = replace(ended, receipt=receipt)
            self._places[name] = replace(place, verified=place.following, tagged=False)

    def conclude(self, ended: Concluded) -> None:
        """Add a round; whoever took part waits for its tags."""
        for name in ended.names:
            self._places[name] = Place(verified=len(self.steps), tagged=True, told=self._place(name).told)
        self.steps.append(ended)

    @property
    def rotations(self) -> list[Registry]:
        """The registries that replaced others."""
        return [step.registry for step in self.steps if isinstance(step, Rotation)]

    def rotate(self, position: Position, registry: Registry) -> set[str]:
        """Another registry from here on; those whose keys it does not hold have no place any more, and are named."""
        before, after = position.session.registry.by_name, registry.by_name
        gone = {name for name, member in before.items() if after.get(name) != member}
        for name in gone:
            self._places.pop(name, None)
        self.steps.append(Rotation(position, registry))
        return gone
