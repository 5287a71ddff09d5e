"""Who takes part in the next round: those who are there, can follow, said yes, and may stand in one sum."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lrdp.federation.server.asking import Asking
from lrdp.federation.server.confirming import lacking, overtaken
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.rotating import Rotating
from lrdp.federation.server.run_result import RunEnded
from lrdp.federation.server.settling import NOT_NOW, UPDATE_SPENT
from lrdp.federation.server.terms import Terms
from lrdp.federation.wire.orders import Order
from lrdp.integrity import Roster
from lrdp.screen import visible

_FLOWER_LOG: Final = logging.getLogger("flwr")
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Convener:
    """One session: who coordinates it, who brings its messages, who was asked whether they can, and what is ordered."""

    terms: Terms
    coordinator: Coordinator
    courier: Courier
    asking: Asking
    order: Order
    rotating: Rotating

    def roster(self) -> tuple[Sequence[str], dict[str, str]]:
        """Who takes part in the round, and who declined; nobody does, if too few can and nothing suggests more will."""
        began = time.monotonic()
        while True:
            chosen = self._wait_for_clients(began)
            names, declined = self.asking.roster(chosen, self.order)
            waited = time.monotonic() - began
            roster = tuple(sorted(chosen))
            given_up = self.coordinator.repetitions.published(roster)  # which lets others make the round
            if names or not self._worth_asking_again(roster, declined, waited):
                in_vain = not names and not given_up and self._are_all(roster)
                self.asking.require_change(declined if in_vain else None)
                return names, declined
            if waited > self.terms.arrival:
                said = ", ".join(f"{name} ({code})" for name, code in sorted(declined.items()))
                raise RunEnded(
                    f"too few of the connected clients can take part: a round needs {self.coordinator.least}, and "
                    f"that did not change in {self.terms.arrival} seconds; declined: {visible(said)}. Start what is "
                    f"missing, and start again: nobody was charged."
                )
            time.sleep(_POLL_SECONDS)

    def _are_all(self, roster: Roster) -> bool:
        """Whether nobody is there who could be chosen in the place of one of ``roster``."""
        return not any(map(self.coordinator.chronicle.can_follow, set(self.present()).difference(roster)))

    def _worth_asking_again(self, roster: Roster, declined: dict[str, str], waited: float) -> bool:
        """Whether those of ``roster`` who declined are worth asking again; if not, a sum over it is given up.

        One that is out has patience with whatever is wrong at one of them, for the others would pay for another.
        """
        codes, repetitions = set(declined.values()), self.coordinator.repetitions
        patient = repetitions.published(roster) and UPDATE_SPENT not in codes and waited < self.terms.patience
        if patient or codes.intersection(NOT_NOW):
            return True
        repetitions.bury(roster, declined)
        return False

    def _wait_for_clients(self, began: float) -> Sequence[str]:
        coordinator, courier, told = self.coordinator, self.courier, ""
        while True:
            self.rotating.take_up()
            self.asking.require(coordinator.least)
            names = self.present()
            if reason := overtaken(coordinator.chronicle, names, coordinator.least):
                raise RunEnded(reason)
            courier.close_for(names)  # also where too few are there: whoever is may be gone once the others come
            waited = time.monotonic() - began
            chosen = self.chosen(names, waited)
            if len(chosen) >= coordinator.least:
                able = [name for name in chosen if coordinator.chronicle.can_follow(name)]
                if len(able) >= coordinator.least:
                    return able
            if waited > self.terms.arrival:
                nobody_else = lacking(coordinator.chronicle) or coordinator.repetitions.lacking
                raise RunEnded(
                    (len(names) >= coordinator.least and nobody_else)
                    or f"{len(names)} connected clients have budget left, a round needs {coordinator.least}, and no "
                    f"more came in {self.terms.arrival} seconds{courier.strangers()}: start more SuperNodes, give "
                    f"those that are connected more budget, or mend why they are not in the session, and start again."
                )
            told = self._tell(names, told)
            time.sleep(_POLL_SECONDS)

    def _tell(self, names: Sequence[str], told: str) -> str:
        """Say what a run waits for, once until it is something else."""
        there = f"{len(names)} with budget left are there, a round needs {self.coordinator.least}"
        if len(names) >= self.coordinator.least:
            there = "enough are there, and a round waits for one that took part in the last"
        if there != told:
            _FLOWER_LOG.info("Waiting for clients, for %s seconds at the most: %s.", self.terms.arrival, there)
        return there

    def present(self) -> list[str]:
        """Those who are there and have budget left, as far as the server knows."""
        return [name for name in self.courier.present() if name not in self.asking.exhausted]

    def chosen(self, names: Sequence[str], waited: float) -> Sequence[str]:
        """A roster that is tried again; nobody, while one is waited for; or those whom the terms choose."""
        repetitions = self.coordinator.repetitions
        again = repetitions.again(names)
        if again is not None:
            return again
        if repetitions.unproved and waited < min(self.terms.patience, self.terms.arrival / 2):
            return ()
        able = repetitions.besides(names, self.coordinator.least)
        if not able:
            return ()
        chosen = self.terms.choose(self.coordinator.round, able)
        self.terms.scheme.require_roster(self.terms.point(self.coordinator.layout.size), len(chosen))
        return chosen
