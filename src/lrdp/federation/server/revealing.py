"""The exchanges of `exact` rounds between commitments and the sum: nobody's masked update leaves before all are bound.

Whoever drops out before that costs the others nothing: they mask the same updates again, for fewer. From the moment
that masked updates are asked for, the roster counts as one whose sum was shown: it is tried again as a whole, or its
updates are given up.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from lrdp.errors import LrdpError
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.wire.masked import Reveal, Revealed
from lrdp.federation.wire.questions import Answer, Decline
from lrdp.integrity import Gathering, Wire, server
from lrdp.screen import visible

_LOG: Final = logging.getLogger("lrdp.server")


def dropped(coordinator: Coordinator) -> set[str]:
    """Those who are invited, and bound to nothing."""
    gathering = coordinator.state(Gathering)
    return set(gathering.train.invited) - {pledge.name for pledge in gathering.pledges}


def revealed(coordinator: Coordinator, courier: Courier) -> str:
    """Ask everybody for its masked update; what is wrong, if not all of them came."""
    asked, problem = _asking(coordinator), ""
    for _ in range(2):  # who was silent is asked once more for the same bytes
        answers = courier.exchange(dict.fromkeys(_concealed(coordinator), asked))
        for name, answer in answers.items():
            problem = _taken(coordinator, name, answer) or problem
        if not _concealed(coordinator):
            return ""
    return problem or f"no masked update of {', '.join(sorted(_concealed(coordinator)))}"


def _asking(coordinator: Coordinator) -> Reveal:
    gathering = coordinator.state(Gathering)
    bound = replace(gathering, pledges=tuple(sorted(gathering.pledges, key=lambda pledge: pledge.name)))
    coordinator.gather(bound)
    coordinator.repetitions.publish(bound.train.invited)
    coordinator.write_down()  # before anybody is asked: a server that forgot might ask fewer for the same updates
    return Reveal(pledges=tuple(map(Wire(bound.idle.position).pledge, bound.pledges)))


def _concealed(coordinator: Coordinator) -> set[str]:
    gathering = coordinator.state(Gathering)
    return set(gathering.train.invited) - {update.pledge.name for update in gathering.updates}


def _taken(coordinator: Coordinator, name: str, answer: Answer) -> str:
    """What is wrong with an answer, if anything."""
    if not isinstance(answer, Revealed):
        return f"{name}: {answer.code if isinstance(answer, Decline) else 'invalid'}"
    gathering = coordinator.state(Gathering)
    try:
        update = Wire(gathering.idle.position).read_update(answer.update, answer.values or b"")
        coordinator.gather(server.admit(gathering, update))
    except LrdpError as problem:
        _LOG.warning("the masked update of %s was not admitted: %s", name, visible(str(problem)))
        return f"{name}: inadmissible"
    return ""
