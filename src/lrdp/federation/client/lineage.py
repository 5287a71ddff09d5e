"""The registries that a client has followed, from a session's first to the newest: it goes back to none of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from lrdp.errors import InvalidInput
from lrdp.federation.wire.questions import Hello
from lrdp.integrity import (
    HistoryStep,
    Identity,
    Registry,
    RegistryTitle,
    Verdict,
    encoded_registry,
    read_lineage,
    read_title,
    rejection,
)


class NotAMember(InvalidInput):
    """The consortium's newest registry does not hold this client's keys."""


@dataclass(frozen=True)
class Lineage:
    """As they were shown, each encoded."""

    encoded: tuple[bytes, ...]

    @classmethod
    def of(cls, hello: Hello) -> Lineage:
        """The session's own registry, those before it, and those that replaced it."""
        return cls((*hello.ancestors, encoded_registry(hello.session), *hello.rotations))

    @cached_property
    def titles(self) -> tuple[RegistryTitle, ...]:
        return tuple(read_title(data) for data in self.encoded)

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """In their order; the last one is in force."""
        return tuple(title.digest for title in self.titles)

    @property
    def newest(self) -> Registry:
        """The one in force."""
        return Registry.decode(self.encoded[-1])

    def verified(self, pin: bytes) -> tuple[Registry, ...]:
        """Decoded, if the pinned one is among them and its consortium made all of them."""
        return _verified(self.encoded, pin)

    def require_newest(self, known: Lineage) -> None:
        """Refuse to go back to before the last of ``known``, which this client followed, if it is of this consortium.

        Guarantees: of two registries of one version a client follows only one, and never one that was replaced.
        """
        if not known.titles:
            return
        newest = known.titles[-1]
        if newest.consortium == self.titles[-1].consortium and newest.digest not in self.digests:
            raise rejection(
                Verdict.REGISTRY_REFUSED,
                f"version {self.titles[-1].version} is shown, and this client has followed the consortium to version "
                f"{newest.version}, {newest.digest.hex()[:12]}",
            )

    def followed(self, start: Registry, steps: Iterable[HistoryStep]) -> Lineage:
        """The registries on the way of ``steps`` from ``start``: they must pass all those here, and may go further."""
        upto = self.encoded[: 1 + self.digests.index(start.digest)] if start.digest in self.digests else ()
        walked = Lineage((*upto, *(step.encode() for step in steps if isinstance(step, Registry))))
        if not upto or walked.digests[: len(self.digests)] != self.digests:
            raise rejection(Verdict.REGISTRY_REFUSED, "the consortium replaced it with one that this client has seen")
        return walked


@lru_cache(maxsize=4)
def _verified(encoded: tuple[bytes, ...], pin: bytes) -> tuple[Registry, ...]:
    return read_lineage(encoded, pin)


def require_member(identity: Identity, newest: Registry) -> None:
    """Refuse to take part unless the consortium says that this client may."""
    known = newest.by_name.get(identity.name)
    if known == identity.member:
        return
    other = "holds other keys of" if known else "does not hold"
    raise NotAMember(
        f"version {newest.version} of the registry {other} {identity.name}: nothing was trained; if that is a mistake, "
        f"send the consortium what `lrdp keys show --json` prints."
    )
