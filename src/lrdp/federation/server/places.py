"""Where each member stands, as far as the server knows."""

from __future__ import annotations

from dataclasses import dataclass


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


UNKNOWN = Place(blank=True)
"""Of whoever has not said where it stands, or stands in another history."""
