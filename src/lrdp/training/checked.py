"""What the check of a model's gradients found, to be kept from round to round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lrdp.training.layers import Batched
from lrdp.training.shapes import Shapes


@dataclass(frozen=True)
class Peaks:
    """Peak bytes by rows: up to the weighted sums, where they grow with the rows, and of the pass as a whole.

    With few rows the sums' own scratch makes the peak of the whole, and hides how the first grows.
    """

    swept: dict[int, int]
    whole: dict[int, int]


@dataclass(frozen=True)
class CheckedGradients:
    """A model and a loss whose per-example gradients were found right, and what a pass over them takes.

    ``subject`` is everything that was checked: the very modules, their modes, the loss, the records' form. Not the
    weights: right gradients are a matter of code, and whoever chooses the weights must not choose what is found.
    ``least_meeting`` is the fewest examples that are added up together; ``batched`` knows which tensors have a row for
    each example.
    ``shapes`` are those that every later pass must have inside; none are known where examples run alone.
    ``alone`` says why examples run one after the other, by plain backward passes; empty if they run together.
    ``probes`` are the public records it was found with, and ``sizes`` the numbers of rows that were checked as well.
    """

    subject: tuple[Any, ...]
    peaks: Peaks
    least_meeting: int
    batched: Batched
    shapes: Shapes | None = None
    alone: str = ""
    probes: Any = None
    sizes: set[int] = field(default_factory=set)
