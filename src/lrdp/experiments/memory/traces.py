"""The allocations of one step, in order, for any size of its batch.

A trace is recorded at two sizes; every allocation's bytes lie on a straight line in the rows of its piece, so all other
sizes follow. ``moves`` has a number for each: a block that is allocated is its bytes, and a block that is freed is minus
its place among those allocated, counted from 1. ``pieces`` are the places in ``moves`` at which a piece of the batch ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
