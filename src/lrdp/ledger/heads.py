"""Signed heads: what others keep of a ledger, so that it cannot forget.

A head says how long the chain was, where it ended and how many steps it had charged, and the same of the entries
1, 2, 4, 8, … before it. A ledger that is shown a head of its own which it does not contain learns from these where the
two chains parted, to within a factor of two of the distance; and from the head's costliest step what each of the steps
beyond that place may have cost, also where only entries that are lost held the policy that allowed it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from lrdp.accounting import Mechanism
from lrdp.errors import InvalidInput
from lrdp.ledger.key_files import SigningKey, is_signed
from lrdp.ledger.texts import decode_mechanism, encode_mechanism

_LABEL: Final = "lrdp-head-2"
_WITHOUT_COSTLIEST: Final = "lrdp-head-1"
MOST_ROTATIONS: Final = 32
_SUCCESSOR: Final = re.compile(r"([0-9a-f]{64}):([0-9a-f]{128})")
LONGEST_HEAD: Final = 16_384
"""Characters of an encoded head: one of 2^63 entries is shorter."""


@dataclass(frozen=True, kw_only=True)
class ChainPoint:
    """A place in a chain: entry ``seq`` has this hash, and ``steps`` were charged up to it."""

    seq: int
    digest: str
    steps: int


class Successor(NamedTuple):
    """A key that took over, and the signature by which the one before it said so."""

    key: str
    signature: str


def rotation_message(ledger: str, old: str, new: str) -> bytes:
    """What an old key signs to hand over to a new one."""
    return f"lrdp-rotate-1 {ledger} {old} {new}".encode()


def handed_over(ledger: str, first: str, successors: Sequence[Successor]) -> bool:
    """Whether each key, beginning with the one that the ledger was opened with, signed for the next."""
    keys = [first, *(successor.key for successor in successors)]
    return all(
        is_signed(old, successor.signature, rotation_message(ledger, old, successor.key))
        for old, successor in zip(keys, successors, strict=False)
    )


def encode_successors(successors: Sequence[Successor]) -> str:
    """One word."""
    return ",".join(f"{successor.key}:{successor.signature}" for successor in successors)


def decode_successors(text: str) -> tuple[Successor, ...]:
    """What :func:`encode_successors` wrote; ValueError for anything else."""
    found = text.split(",", MOST_ROTATIONS) if text else []
    if len(found) > MOST_ROTATIONS:
        raise ValueError(f"more than {MOST_ROTATIONS} keys in succession")
    return tuple(map(_successor, found))


@dataclass(frozen=True, kw_only=True)
class Head:
    """The newest point of a ledger and some before it, newest first; ``generation`` counts adopted heads.

    ``costliest`` costs at least as much as each step that any policy up to here allowed; heads of the first form do not
    say it. ``successors`` leads from the key that the ledger was opened with to the one that signed: books that were
    restored from before a rotation still recognise the heads made after it.
    """

    ledger: str
    generation: int
    points: tuple[ChainPoint, ...]
    costliest: Mechanism | None = None
    successors: tuple[Successor, ...] = ()
    signature: str = ""

    @property
    def seq(self) -> int:
        return self.points[0].seq

    @property
    def digest(self) -> str:
        return self.points[0].digest

    @property
    def steps(self) -> int:
        return self.points[0].steps

    @property
    def age(self) -> tuple[int, int]:
        """Of two heads of one ledger keep the one for which this is larger."""
        return self.generation, self.seq

    def message(self) -> bytes:
        """What is signed."""
        points = [f"{point.seq}:{point.digest}:{point.steps}" for point in self.points]
        words = [self.ledger, str(self.generation), ",".join(points)]
        if self.costliest is None:
            words = [_WITHOUT_COSTLIEST, *words]
        else:
            words = [_LABEL, *words, encode_mechanism(self.costliest).replace(" ", ",")]
        return " ".join([*words, encode_successors(self.successors)] if self.successors else words).encode()

    def signed(self, key: SigningKey) -> Head:
        """The same head with its signature."""
        return replace(self, signature=key.sign(self.message()))

    def is_signed_by(self, public: str) -> bool:
        """Whether it was signed with the key that the ledger was opened with, or with the last of its successors."""
        if not handed_over(self.ledger, public, self.successors):
            return False
        key = self.successors[-1].key if self.successors else public
        return is_signed(key, self.signature, self.message())

    def encode(self) -> str:
        """One line of ASCII."""
        return f"{self.message().decode()} {self.signature}"

    @classmethod
    def decode(cls, text: str) -> Head:
        """The head that :meth:`encode` wrote; its signature is not checked here."""
        if len(text) > LONGEST_HEAD:
            raise InvalidInput(f"a head has at most {LONGEST_HEAD} characters, got {len(text)}.")
        try:
            label, ledger, generation, points, *words, signature = text.strip().split(" ")
            costliest = decode_mechanism(words.pop(0).replace(",", " ")) if label == _LABEL else None
            head = cls(
                ledger=ledger,
                generation=int(generation),
                points=tuple(_point(point) for point in points.split(",")),
                costliest=costliest,
                successors=decode_successors(",".join(words)),
                signature=signature,
            )
        except (ValueError, IndexError, InvalidInput):
            raise InvalidInput(f"a head is one line of five to seven words, got {text[:60]!r}.") from None
        if head.encode() != text.strip():
            raise InvalidInput(
                f"a head begins with {_LABEL} or {_WITHOUT_COSTLIEST} and has one spelling, got {text[:60]!r}."
            )
        return head


def _successor(text: str) -> Successor:
    found = _SUCCESSOR.fullmatch(text)
    if found is None:
        raise ValueError("a successor is a key and a signature in lower-case hexadecimal")
    return Successor(found[1], found[2])


def _point(text: str) -> ChainPoint:
    seq, digest, steps = text.split(":")
    return ChainPoint(seq=int(seq), digest=digest, steps=int(steps))
