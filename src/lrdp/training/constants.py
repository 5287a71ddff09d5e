"""What is fixed and public before training, and what is only a matter of performance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.training.clipping import FLAT, Clipping, check_clipping
from lrdp.training.memory import MemoryPlan, parse_bytes
from lrdp.training.optimisers import Optimiser
from lrdp.training.progress import ObserveStep, silence
from lrdp.training.torch_optimisers import as_optimiser

_LEAST_CLIP, _MOST_CLIP = 1e-6, 1e9
_LEAST_NORMALISER, _MOST_NORMALISER = 1e-3, 1e12


@dataclass(frozen=True, kw_only=True)
class PublicConstants:
    """Chosen without looking at the data, and the same on any neighbouring data set.

    ``clip_norm`` is C: the most one example can move the sum. ``first_step`` counts the steps of earlier rounds, for
    the learning rate's schedule. ``optimiser`` is ours, or makes one of torch's that takes the same steps, such as
    ``functools.partial(torch.optim.SGD, lr=0.1)``. ``forward_dtype`` may be bfloat16; norms, sums and
    weights keep the weights' type. ``clipping`` says what becomes of a gradient by its length. The noised sum is
    divided by ``normaliser``, or by the mechanism's batch size without one: where clients of different sizes take
    the same one, each record counts the same in their average. None of these changes what a step costs.
    """

    clip_norm: float
    optimiser: Optimiser
    first_step: int = 0
    forward_dtype: torch.dtype | None = None
    clipping: Clipping = FLAT
    normaliser: float | None = None

    def __post_init__(self) -> None:
        limits.keep(
            self,
            clip_norm=limits.positive("clip_norm", self.clip_norm, "it bounds what one example can do"),
            first_step=limits.whole("first_step", self.first_step, 0, "it counts steps already taken"),
            optimiser=as_optimiser(self.optimiser),
        )
        check_clipping(self.clipping)
        if self.normaliser is not None:
            limits.keep(self, normaliser=_normaliser(self.normaliser))
        if not _LEAST_CLIP <= self.clip_norm <= _MOST_CLIP:
            raise InvalidInput(
                f"clip_norm must lie between {_LEAST_CLIP} and {_MOST_CLIP}, got {self.clip_norm}: what float32 loses "
                f"near its smallest and largest numbers must be small compared with it; scale the loss."
            )
        if self.forward_dtype not in (None, torch.bfloat16):
            raise InvalidInput(f"forward_dtype must be None or torch.bfloat16, got {self.forward_dtype}.")


def _normaliser(given: float) -> float:
    found = limits.positive("normaliser", given, "the noised sum is divided by it")
    if not _LEAST_NORMALISER <= found <= _MOST_NORMALISER:
        raise InvalidInput(
            f"normaliser must lie between {_LEAST_NORMALISER} and {_MOST_NORMALISER}, got {given}: weights would leave "
            f"float32, or never move."
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How to run, without effect on the result: rows at a time or a limit to choose them by, and who watches.

    ``announce`` is told the peak before the first step, ``observe`` the end of each. ``memory_limit`` bounds the whole
    process, e.g. ``"512MB"``; where ``micro_batch`` is given as well, it decides. With ``read_ahead`` a thread
    reads the next rows while these are computed: for data sets that wait for a disk or a network.

    >>> Execution(memory_limit="900MB").micro_batch is None
    True
    """

    micro_batch: int | None = None
    memory_limit: str | None = None
    read_ahead: bool = False
    observe: ObserveStep = silence
    announce: Callable[[MemoryPlan], None] = silence

    def __post_init__(self) -> None:
        if self.micro_batch is not None:
            limits.keep(
                self, micro_batch=limits.whole("micro_batch", self.micro_batch, 1, "a pass has at least one row")
            )
        if self.memory_limit is not None:
            parse_bytes(self.memory_limit)
        if type(self.read_ahead) is not bool:
            raise InvalidInput(f"read_ahead must be True or False, got {self.read_ahead!r}.")

    def in_passes(self, rows: int) -> Execution:
        """The same in no more than ``rows`` rows at a time; where there is only a memory limit, that decides."""
        if self.memory_limit is not None and self.micro_batch is None:
            return self
        return replace(self, micro_batch=min(rows, self.micro_batch or rows))
