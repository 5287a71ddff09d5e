"""A pass over examples of which some make the model or the loss raise: those are left out, and nobody learns of it.

An error that reached the server would tell that such a record was drawn. Nor may the others be computed in another way
because of it: whoever chooses the weights could make rounding turn another way into another gradient. So every attempt
has the same shape, each example stays in its slot, and an example that raises is replaced by a copy of one that does
not.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from lrdp.training.engine import Batch, Engine
from lrdp.training.tape import Tape

_LOG = logging.getLogger("lrdp.training")
_LEFT_OUT = "the model or the loss raised on %d of %d rows, which were left out of this step"


def tolerant_sweep(engine: Engine, batch: Batch, rows: int) -> tuple[Tape | None, Tensor]:
    """The measured pass, without the examples that raise, and a mark for each of the others; no pass if all raise.

    Guarantees: where nothing raises, exactly ``engine.sweep``. Otherwise an example counts if and only if it can be
    computed among those before it that count, and copies of one that raises nowhere.
    """
    attempt = _Attempt(engine, rows)
    tape = attempt.sweep(batch)
    if tape is not None:
        return tape, torch.ones(rows, dtype=torch.bool, device=engine.device)
    usable = torch.zeros(rows, dtype=torch.bool, device=engine.device)
    spare = next((row for row in range(rows) if attempt.sweep(_copies(batch, row, rows)) is not None), None)
    if spare is not None:
        attempt.admit(batch, range(rows), spare, usable)
        tape = attempt.sweep(_mixed(batch, usable, spare))
    _LOG.warning(_LEFT_OUT, rows - int(usable.sum()), rows, exc_info=attempt.problem)
    return tape, usable


class _Attempt:
    """Passes of one shape with the same random numbers: what raises once raises again."""

    def __init__(self, engine: Engine, rows: int) -> None:
        self._engine, self._rows = engine, rows
        self._devices = [engine.device] if engine.device.type == "cuda" else []
        self._state = torch.get_rng_state(), [torch.cuda.get_rng_state(device) for device in self._devices]
        self.problem: BaseException | None = None

    def sweep(self, batch: Batch) -> Tape | None:
        """The measured pass, or None if it raises."""
        torch.set_rng_state(self._state[0])
        for device, state in zip(self._devices, self._state[1], strict=True):
            torch.cuda.set_rng_state(state, device)
        try:
            return self._engine.sweep(batch, self._rows)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - whatever a model or a loss does with a record
            # Its traceback would keep the whole pass in memory.
            self.problem = problem.with_traceback(None)
            return None

    def admit(self, batch: Batch, some: range, spare: int, usable: Tensor) -> None:
        """Mark as usable those of ``some`` that raise neither alone nor with those marked already, by halving."""
        usable[some.start : some.stop] = True
        if self.sweep(_mixed(batch, usable, spare)) is not None:
            return
        usable[some.start : some.stop] = False
        if len(some) > 1:
            half = len(some) // 2
            self.admit(batch, some[:half], spare, usable)
            self.admit(batch, some[half:], spare, usable)


def _copies(batch: Batch, row: int, rows: int) -> Any:
    return tree_map(lambda leaf: leaf[row : row + 1].expand(rows, *leaf.shape[1:]).contiguous(), batch)


def _mixed(batch: Batch, kept: Tensor, spare: int) -> Any:
    """The batch with copies of the row ``spare`` in all rows but those to be kept."""
    places = torch.where(kept, torch.arange(len(kept), device=kept.device), spare)
    return tree_map(lambda leaf: leaf.index_select(0, places), batch)
