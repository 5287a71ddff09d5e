"""What to train, on what, and how: one value that is handed around whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from lrdp import limits
from lrdp.training.checked import CheckedGradients
from lrdp.training.constants import Execution, PublicConstants
from lrdp.training.losses import Loss
from lrdp.training.optimisers import Moments
from lrdp.training.records import Dataset
from lrdp.training.torch_losses import as_loss


@dataclass(frozen=True, kw_only=True)
class Task:
    """``loss(model, batch)`` returns one value per example; ``batch`` holds the data set's records, stacked.

    Or it is one of torch's, such as ``F.cross_entropy`` or ``nn.MSELoss()``, for records with an input and a target.

    ``probes`` are three or more *public* records of the same form, for models that do not take made-up ones.
    ``checked`` is what ``check_gradients`` found for the same model, loss and records; without it each update checks.
    ``moments`` are ``Update.moments`` of the update before, which an optimiser with ``over_rounds`` goes on from.

    >>> import torch
    >>> from lrdp.training import Sgd, TensorRecords
    >>> task = Task(
    ...     model=nn.Linear(4, 3),
    ...     dataset=TensorRecords(torch.rand(50, 4), torch.arange(50) % 3),
    ...     loss=nn.functional.cross_entropy,
    ...     constants=PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.5)),
    ... )
    >>> task.loss.words
    "torch's cross_entropy of each example by itself, never of a batch"
    """

    model: nn.Module
    dataset: Dataset
    loss: Loss
    constants: PublicConstants
    execution: Execution = field(default_factory=Execution)
    probes: Sequence[Any] = ()
    checked: CheckedGradients | None = None
    moments: Moments | None = None

    def __post_init__(self) -> None:
        limits.keep(self, loss=as_loss(self.loss))
