"""Two ways from a batch to the sum of its clipped gradients: all examples together, or one after the other.

Both add the clipped gradients of the rows that are marked live to the totals. What a record does never surfaces.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from lrdp.training.chance import begin_at
from lrdp.training.clipping import FLAT, WIDE, Clipping, Lengths, coefficients, row_squares
from lrdp.training.engine import Batch, Engine, Totals
from lrdp.training.isolation import tolerant_sweep
from lrdp.training.probes import some_rows
from lrdp.training.rounding import Meeting, additions_of, can_add_up

_LOG = logging.getLogger("lrdp.training")
_SEEDS = 2**62


@dataclass(frozen=True)
class Clip:
    """How gradients are shortened and added up in a step of ``slots`` rows, taken in ``passes`` passes."""

    norm: float
    dtype: torch.dtype
    slots: int
    passes: int
    clipping: Clipping = FLAT

    def weights(self, lengths: Lengths) -> Tensor:
        """What each example's gradient is multiplied by."""
        return coefficients(lengths, self.norm, self.dtype, self.clipping)

    def totals(self, rows: int, together: int) -> torch.dtype:
        """The type that sums need if ``together`` examples at a time are added to them, of ``rows`` in a pass."""
        additions = self.passes * additions_of(rows, together)
        return self.dtype if can_add_up(self.slots, additions, self.dtype, self.dtype) else WIDE


def together(engine: Engine, batch: Batch, live: Tensor, clip: Clip, totals: Totals) -> None:
    """One backward pass for all, by the layers' rules."""
    tape, usable = tolerant_sweep(engine, batch, len(live))
    if tape is not None:
        weights = clip.weights(tape.lengths) * (live & usable)
        tape.release(weights, totals, clip.totals(len(live), tape.least_meeting))


def one_by_one(engine: Engine, batch: Batch, live: Tensor, clip: Clip, totals: Totals) -> None:
    """A plain backward pass for each: exact for whatever a model does with one example, and slower.

    An example is measured, shortened and added before the next is looked at, so no more than one gradient is held. Its
    random numbers depend on its slot alone, not on how many the examples before it took.
    """
    dtype = clip.totals(len(live), 1)
    *seeds, after = torch.randint(_SEEDS, (len(live) + 1,)).tolist()
    for row, (there, seed) in enumerate(zip(live.tolist(), seeds, strict=True)):
        begin_at(seed, engine.device)
        gradients = _gradients_of_one(engine, some_rows(batch, slice(row, row + 1)))
        weight = clip.weights(_lengths(engine, gradients)) * there
        for parameter, gradient in gradients.items():
            if parameter not in totals:
                totals[parameter] = torch.zeros_like(
                    parameter, dtype=dtype, memory_format=torch.contiguous_format, requires_grad=False
                )
            kept = gradient * weight.to(gradient.dtype)
            totals[parameter] += torch.where(weight == 0, 0.0, kept)
    begin_at(after, engine.device)


def _gradients_of_one(engine: Engine, single: Batch) -> dict[Parameter, Tensor]:
    """By a plain backward pass; none if anything raises."""
    try:
        return engine.plain_gradients(single)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - whatever a model or a loss does with a record
        _LOG.warning("the model or the loss raised on a row, which was left out of this step", exc_info=problem)
        return {}


def _lengths(engine: Engine, gradients: dict[Parameter, Tensor]) -> Lengths:
    squares = torch.zeros(1, dtype=WIDE, device=engine.device)
    for gradient in gradients.values():
        squares += row_squares(gradient.reshape(1, -1))
    return Lengths(squares, squares * Meeting(1, 1, engine.dtype).radius ** 2)
