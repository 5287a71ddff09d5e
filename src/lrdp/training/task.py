"""What to train, on what, and how: one value that is handed around whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from lrdp.training.checked import CheckedGradients
from lrdp.training.constants import Execution, PublicConstants
from lrdp.training.engine import Loss
from lrdp.training.records import Dataset


@dataclass(frozen=True, kw_only=True)
class Task:
    """``loss(model, batch)`` returns one value per example; ``batch`` holds the data set's records, stacked.

    ``probes`` are three or more *public* records of the same form, for models that do not take made-up ones.
    ``checked`` is what ``check_gradients`` found for the same model, loss and records; without it each update checks.
    """

    model: nn.Module
    dataset: Dataset
    loss: Loss
    constants: PublicConstants
    execution: Execution = field(default_factory=Execution)
    probes: Sequence[Any] = ()
    checked: CheckedGradients | None = None
