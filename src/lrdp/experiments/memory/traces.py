"""The allocations of one step, in order, for any size of its batch.

A trace is recorded at two sizes; every allocation's bytes lie on a straight line in the rows of its piece, so all other
sizes follow. ``moves`` has a number for each: a block that is allocated is its bytes, and a block that is freed is
minus its place among those allocated, counted from 1. ``pieces`` are the places in ``moves`` at which a piece of the
batch ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lrdp.errors import InvalidInput
from lrdp.experiments.memory.contestants import PIECE
from lrdp.experiments.memory.measuring import STEP, Happening


def of_last_step(happenings: Sequence[Happening]) -> dict[str, Any]:
    """The moves of the last step, which is like all after it; and the bytes that crossed its borders.

    What an earlier step left is freed without a move; what this one leaves is freed at its end.
    """
    ends = [place for place, one in enumerate(happenings) if one.mark == STEP]
    begin = ends[-2] + 1 if len(ends) > 1 else 0
    moves: list[int] = []
    pieces: list[int] = []
    where: dict[int, int] = {}
    left = before = count = 0
    for one in happenings[begin : ends[-1]]:
        if one.mark == PIECE:
            pieces.append(len(moves))
        elif one.size > 0:
            count += 1
            where[one.address] = count
            moves.append(one.size)
            left += one.size
        elif one.address in where:
            moves.append(-where.pop(one.address))
            left += one.size
        else:
            before -= one.size
    moves += [-number for number in sorted(where.values())]
    return {"moves": moves, "pieces": pieces, "kept_bytes": left, "earlier_bytes": before}


@dataclass(frozen=True)
class Trace:
    """A step's moves, cut into pieces: each is the part of the batch that is computed at once."""

    pieces: tuple[tuple[int, ...], ...]

    @property
    def moves(self) -> Iterator[int]:
        """All of them in order."""
        return (move for piece in self.pieces for move in piece)


def trace_of(record: Mapping[str, Any]) -> Trace:
    """From what was kept of a recording: the last piece has whatever follows it."""
    moves, inner = record["moves"], record["pieces"][:-1]
    ends = zip([0, *inner], [*inner, len(moves)], strict=True)
    return Trace(tuple(tuple(moves[begin:end]) for begin, end in ends))


def rows_of(size: int, micro_batch: int) -> tuple[int, ...]:
    """The rows of a batch's pieces, as even as can be, larger ones first; as Opacus's BatchMemoryManager has them."""
    count = -(-size // micro_batch) if micro_batch else 1
    return tuple(size // count + (place < size % count) for place in range(count))


@dataclass(frozen=True)
class Lines:
    """Traces of every size, from two: bytes are a straight line in the rows of a piece."""

    few: Trace
    few_rows: int
    many: Trace
    many_rows: int

    def __post_init__(self) -> None:
        one, other = ([[min(0, move) for move in piece] for piece in each.pieces] for each in (self.few, self.many))
        if one != other:
            raise InvalidInput(
                f"steps of {self.few_rows} and {self.many_rows} rows allocate in different orders: no other size "
                f"follows from them; record traces closer to each other."
            )

    def at(self, rows: Sequence[int]) -> Trace:
        """With this many rows in each piece."""
        if len(rows) != len(self.few.pieces):
            raise InvalidInput(f"these traces have {len(self.few.pieces)} pieces, got rows for {len(rows)}.")
        return Trace(tuple(self._piece(*each) for each in zip(self.few.pieces, self.many.pieces, rows, strict=True)))

    def _piece(self, few: Sequence[int], many: Sequence[int], rows: int) -> tuple[int, ...]:
        share = Fraction(rows - self.few_rows, self.many_rows - self.few_rows)
        return tuple(low if low < 0 else round(low + share * (high - low)) for low, high in zip(few, many, strict=True))


def difference(one: Trace, other: Trace) -> float:
    """The largest difference of two blocks, relative to the most that live at once; infinite if the orders differ."""
    pairs = list(zip(one.moves, other.moves, strict=False))
    same = [len(piece) for piece in one.pieces] == [len(piece) for piece in other.pieces]
    if not same or any(min(first, second) < 0 and first != second for first, second in pairs):
        return math.inf
    return max(abs(first - second) for first, second in pairs) / live_peak(one)


def live_peak(trace: Trace) -> int:
    """The most bytes that live at once."""
    live = most = 0
    taken: list[int] = []
    for move in trace.moves:
        if move > 0:
            taken.append(move)
        live += move if move > 0 else -taken[-move - 1]
        most = max(most, live)
    return most
