"""Before anybody is charged: who can take part? A round that cannot be completed is not begun."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from lrdp.errors import NotVerified
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.nodes import SILENT
from lrdp.federation.server.run_result import RunEnded
from lrdp.federation.server.settling import EXHAUSTED
from lrdp.federation.wire.masked import AbleToMask
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import Able, Answer, Decline
from lrdp.integrity import Roster
from lrdp.screen import visible

_LOG: Final = logging.getLogger("lrdp.server")


class Asking:
    """Who said yes to which order, and who has nothing left for this run."""

    def __init__(self, coordinator: Coordinator, courier: Courier) -> None:
        self._coordinator, self._courier = coordinator, courier
        self._able: set[tuple[str, bytes]] = set()
        self._out: dict[str, str] = {}
        self._in_vain: dict[str, str] | None = None

    @property
    def exhausted(self) -> set[str]:
        """Those who are not asked again."""
        return set(self._out)

    def heard(self, declined: dict[str, str]) -> None:
        """What was declined, before work or in answer to it: whoever has nothing left is not asked again."""
        self._out |= {name: code for name, code in declined.items() if code in EXHAUSTED}

    def require(self, count: int, besides: Collection[str] = ()) -> None:
        """Raise RunEnded where fewer than ``count`` members are left that could still come; ``besides`` have paid."""
        members = self._coordinator.members
        left = (set(members) - self.exhausted) | set(besides)
        if len(left) < count:
            raise RunEnded(
                f"{len(left)} of {len(members)} members have budget left, and a round needs {count}; "
                f"{_said(self._out)} declined for the rest of this run."
            )

    def require_change(self, declined: dict[str, str] | None) -> None:
        """Raise RunEnded where nobody could be asked for work, for the very refusals of the attempt before.

        Each attempt that is left would end in the same way, at once; so they are kept for when that is mended. None is
        for an attempt after which the next one may go better by itself.
        """
        if declined is not None and declined == self._in_vain:
            raise RunEnded(
                f"too few can take part, as in the attempt before: a round needs {self._coordinator.least}, and "
                f"{_said(declined)} declined. Mend that, and start again: nobody was charged."
            )
        self._in_vain = declined

    def roster(self, chosen: Sequence[str], order: Order) -> tuple[list[str], dict[str, str]]:
        """Those who can make the round, or nobody if they are too few; and who declined, each with its code.

        Where some decline, the others may get a different order from the one they were asked about: then they are asked
        again.
        """
        names, declined = sorted(chosen), dict[str, str]()
        while names:
            said = self.declined(names, order, tuple(names))
            declined |= said
            names = [name for name in names if name not in said]
            if len(names) < self._coordinator.least or not self._coordinator.repetitions.may_be(names, chosen):
                names = []
            if not said:
                break
        return names, declined

    def declined(self, names: Sequence[str], order: Order, roster: Roster) -> dict[str, str]:
        """Ask everybody who has not said yes to this order yet; returns who declines, and with which word."""
        questions = self._coordinator.can_you(names, order, roster)
        new = {
            name: asked
            for name, asked in questions.items()
            if (name, asked.signature) not in self._able or self._coordinator.keys.lack(name)
        }
        answers, declined = self._courier.ask(new) if new else {}, dict[str, str]()
        for name, asked in new.items():
            answer = answers.get(name, SILENT)
            if self._is_yes(name, answer):
                self._coordinator.reached(name)
                self._able.add((name, asked.signature))
            else:
                declined[name] = answer.code if isinstance(answer, Decline) else "invalid"
        self.heard(declined)
        return declined

    def _is_yes(self, name: str, answer: Answer) -> bool:
        """Whether it would do the work, and has announced a mask key where updates are masked."""
        if not isinstance(answer, Able | AbleToMask):
            return False
        try:
            self._coordinator.keys.put(name, answer.key if isinstance(answer, AbleToMask) else b"")
        except NotVerified as problem:
            _LOG.warning("%s announced no mask key that its peers would take: %s", name, visible(str(problem)))
            return False
        return True


def _said(declined: dict[str, str]) -> str:
    return visible(", ".join(f"{name} ({code})" for name, code in sorted(declined.items())))
