"""Between two rounds a running server takes up the consortium's next registry, if one lies in its folder."""

from __future__ import annotations

import logging
from typing import Final

from lrdp.errors import InvalidInput, NotVerified
from lrdp.federation.server.confirming import lacking, would_strand
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.integrity import Registry, RegistryShelf
from lrdp.screen import visible

_LOG: Final = logging.getLogger("lrdp.server")
_FLOWER_LOG: Final = logging.getLogger("flwr")  # which `flwr run --stream` shows


class Rotating:
    """Looks for the next registry; one that clients would refuse is named once, and the session goes on without it."""

    def __init__(self, shelf: RegistryShelf, coordinator: Coordinator, courier: Courier) -> None:
        self._shelf, self._coordinator, self._courier = shelf, coordinator, courier
        self._refused = ""

    def take_up(self) -> set[str]:
        """Put in force, one after the other, whatever is due between these rounds; returns whose keys are gone."""
        gone = set[str]()
        while self._coordinator.between_rounds and (following := self._next()) is not None:
            before = self._coordinator.registry
            self._courier.present()  # a server that was started again knows nobody's node until it has greeted them
            self._courier.close()  # whoever joins now believes in the last round because a quorum accepted it
            if would_strand(self._coordinator.chronicle, following, self._coordinator.least):
                waiting = lacking(self._coordinator.chronicle)
                self._name(f"a round needs the confirmation of whoever leaves with it. {waiting}")
                return gone
            try:
                left = self._coordinator.rotate(following)
            except NotVerified as problem:
                self._name(str(problem))
                return gone
            self._courier.dismiss(left)
            gone |= left
            _FLOWER_LOG.info(told(before, following, self._coordinator.round))
        return gone

    def _next(self) -> Registry | None:
        try:
            following = self._shelf.after(self._coordinator.registry)
        except (InvalidInput, NotVerified) as problem:
            self._name(str(problem))
            return None
        due = following is not None and self._coordinator.round >= max(1, following.first_round)
        return following if due else None

    def _name(self, problem: str) -> None:
        if problem != self._refused:
            _LOG.warning("the next registry is not taken up: %s", visible(problem))
        self._refused = problem


def told(before: Registry, after: Registry, number: int) -> str:
    """One line about who came and went."""
    old, new = before.by_name, after.by_name
    changes = {
        "joined": sorted(new.keys() - old.keys()),
        "left": sorted(old.keys() - new.keys()),
        "with new keys": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
    }
    parts = [f"{what}: {', '.join(names)}" for what, names in changes.items() if names]
    return visible(" · ".join([f"registry {after.version} is in force from round {number + 1} on", *parts]))
