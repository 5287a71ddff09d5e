"""What a server sees of updates, and which exchanges that takes: a value of the terms, one for each proof method.

``SketchRounds`` are the default: updates come in the clear, in one exchange. In ``ExactRounds`` they come under masks,
in two: commitments first, and the masked updates once everybody is bound; the server relays all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Final, NamedTuple, Protocol

import numpy as np

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.federation.wire.layout import raw, unpack_values
from lrdp.federation.wire.masked import MaskedAnnouncement, Pledged, Pledging, require_relayable
from lrdp.federation.wire.questions import Announcement, Contribute, Contributed, Sum
from lrdp.integrity import (
    FEWEST,
    ExactServer,
    FixedPoint,
    Gathering,
    ProofMethod,
    Publish,
    Published,
    Registry,
    Room,
    Roster,
    ServerScheme,
    SketchServer,
    Wire,
    server,
)
from lrdp.ledger import Retries


class RoundScheme(Protocol):
    """How a round's updates reach the server."""

    @property
    def half(self) -> ServerScheme:
        """The server's half of the method."""

    @property
    def masks(self) -> bool:
        """Whether updates are masked: then keys are asked for before, and the masked updates after the commitments."""

    def require_size(self, point: FixedPoint, registry: Registry) -> None:
        """Raise InvalidInput, before anybody is greeted, where rounds would be too large."""

    def require_roster(self, point: FixedPoint, count: int) -> None:
        """Raise InvalidInput, before anybody is asked, where a round of ``count`` would be too large."""

    def invitation(self, work: Contribute, keys: tuple[bytes, ...]) -> Contribute | Pledging:
        """What everybody invited is asked."""

    def taken(self, gathering: Gathering, answer: Contributed | Pledged, room: Room) -> tuple[Gathering, str]:
        """The same with what an answer adds, and whose it is; raises NotVerified or InvalidInput if that fails."""

    def announcement(self, wire: Wire, said: Publish) -> Sum:
        """PUBLISH as it travels."""

    def shown(self, state: object) -> tuple[Roster, set[str]] | None:
        """The roster whose sum may be out if the attempt ends here, and those of it who have not done their part."""


@dataclass(frozen=True, kw_only=True)
class SketchRounds:
    """The server sees each noised update; masked tags prove the sum. One exchange, and no limit to a model's size.

    >>> SketchRounds().masks, SketchRounds().half.method.value
    (False, 'sketch')
    """

    half: ClassVar[ServerScheme] = SketchServer()
    masks: ClassVar[bool] = False

    def require_size(self, point: FixedPoint, registry: Registry) -> None:
        """Any: a sum is as long as one update."""

    def require_roster(self, point: FixedPoint, count: int) -> None:
        """As many as there are."""

    def invitation(self, work: Contribute, keys: tuple[bytes, ...]) -> Contribute:  # noqa: ARG002
        """As it is."""
        return work

    def taken(self, gathering: Gathering, answer: Contributed | Pledged, room: Room) -> tuple[Gathering, str]:
        """Commitment and update at once."""
        if not isinstance(answer, Contributed):
            raise InvalidInput("a commitment alone, where the update must come with it.")
        position = gathering.idle.position
        values = unpack_values(answer.values or b"", position.session.parameters.point, room)
        update = Wire(position).read_update(answer.update, raw(values))
        return server.admit(server.enlist(gathering, update.pledge), update), update.pledge.name

    def announcement(self, wire: Wire, said: Publish) -> Announcement:
        """The sum alone."""
        return Announcement(publish=wire.publish(said), aggregate=raw(said.aggregate))

    def shown(self, state: object) -> tuple[Roster, set[str]] | None:
        """Those of a sum that was published."""
        return _published(state)


@dataclass(frozen=True, kw_only=True)
class ExactRounds:
    """The server sees the sum alone; everybody is sent everybody's masked update, so a round has a largest size.

    ``largest_roster`` is the most that ``Terms.choose`` will ever choose, all of the registry unless given: the size is
    checked for that many when the session is opened, and a round of more is an error. It takes one more exchange;
    whoever leaves ends the attempt for all.

    >>> ExactRounds(largest_roster=12).require_roster(FixedPoint(size=1000), 13)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lrdp.errors.InvalidInput: Terms.choose picked 13 participants for a round, and ExactRounds(largest_roster=12) ...
    """

    largest_roster: int | None = None
    half: ClassVar[ServerScheme] = ExactServer()
    masks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.largest_roster is not None:
            limits.whole("largest_roster", self.largest_roster, FEWEST, "of two, each could subtract itself")

    def require_size(self, point: FixedPoint, registry: Registry) -> None:
        """The largest round's announcement must be one that clients take."""
        most = len(registry.members)
        require_relayable(point, most if self.largest_roster is None else min(most, self.largest_roster))

    def require_roster(self, point: FixedPoint, count: int) -> None:
        """No more than the size was checked for; clients would refuse a larger round one by one, and not say why."""
        most = self.largest_roster
        if most is not None and count > most:
            raise InvalidInput(
                f"Terms.choose picked {count} participants for a round, and ExactRounds(largest_roster={most}) permits "
                f"{most}: let it pick fewer, or state a larger roster, and start again; the round was not begun, "
                f"nobody was asked, and nothing was trained or spent for it."
            )
        require_relayable(point, count)

    def invitation(self, work: Contribute, keys: tuple[bytes, ...]) -> Pledging:
        """With everybody's mask key."""
        return Pledging(keys=keys, **{one.name: getattr(work, one.name) for one in fields(work)})

    def taken(self, gathering: Gathering, answer: Contributed | Pledged, room: Room) -> tuple[Gathering, str]:  # noqa: ARG002
        """The commitment; the masked update comes once everybody has sent one."""
        if not isinstance(answer, Pledged):
            raise InvalidInput("an update in the clear, which this session's server must not see.")
        pledge = Wire(gathering.idle.position).read_pledge(answer.pledge)
        return server.enlist(gathering, pledge), pledge.name

    def announcement(self, wire: Wire, said: Publish) -> MaskedAnnouncement:
        """The sum and, as one body, all masked updates."""
        relayed = np.concatenate([update.values for update in said.relayed])
        return MaskedAnnouncement(publish=wire.publish(said), aggregate=raw(said.aggregate), relayed=raw(relayed))

    def shown(self, state: object) -> tuple[Roster, set[str]] | None:
        """Those of a sum that was published; or all invited, once they were asked for their masked updates."""
        if isinstance(state, Gathering) and len(state.pledges) == len(state.train.invited):
            here = {update.pledge.name for update in state.updates}
            return state.train.invited, set(state.train.invited) - here
        return _published(state)


def _published(state: object) -> tuple[Roster, set[str]] | None:
    if not isinstance(state, Published):
        return None
    return state.header.names, set(state.header.names) - {tag.name for tag in state.tags}


class Conduct(NamedTuple):
    """How a server leads a session's rounds: what it tries when somebody leaves, and what it sees of updates."""

    retries: Retries = Retries.SAME_ROSTER
    scheme: RoundScheme = SketchRounds()


SCHEMES: Final[dict[ProofMethod, RoundScheme]] = {
    ProofMethod.SKETCH: SketchRounds(),
    ProofMethod.EXACT: ExactRounds(),
}
