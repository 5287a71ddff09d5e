"""The mean and scale of features, noised and charged as a step of training: they *are* one.

The loss is linear in the weights, so that a record's gradient is its own features, and their squares, whatever the
weights are. A step of plain SGD from zero therefore leaves the noised mean of a batch in the weights: clipped, noised,
accounted and, in a federation, verified like every other step, by the same code. What is made of it later is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.training.constants import PublicConstants
from lrdp.training.losses import ExampleLoss
from lrdp.training.optimisers import Sgd
from lrdp.training.records import Dataset
from lrdp.training.rounding import clip_target
from lrdp.training.task import Task

_LEAST_SHARE: Final = 1e-3
"""Of the mean variance: what noise leaves below that is taken for noise."""


class FeatureMoments(nn.Module):
    """Two weights for each of ``width`` features: after a step, the noised means of features and of their squares.

    Args:
        reach: public: how long a record's features may be. Longer ones count as if they were about that long.
        clip_norm: what the policy clips to. A record within reach is not shortened.

    >>> from lrdp.accounting import TruncatedPoissonGaussian
    >>> from lrdp.training import TensorRecords, unaccounted_private_update
    >>> moments = FeatureMoments(8, reach=1.0, clip_norm=1.0)
    >>> task = moments_task(moments, TensorRecords(torch.rand(90, 8) / 3, torch.arange(90) % 2), clip_norm=1.0)
    >>> isinstance(task.loss, FeatureSum)
    True
    >>> step = TruncatedPoissonGaussian(dataset_size=100, batch_size=20, cap=30, noise_multiplier=1.0)
    >>> found = unaccounted_private_update(step, 1, task)  # a client: private_update(receipt, task)
    >>> moments.load_state_dict({"total.weight": moments.total.weight + found.delta["total.weight"]})
    <All keys matched successfully>
    >>> frozen = moments.centred()
    >>> isinstance(frozen, Standardised), frozen(torch.rand(2, 8)).shape
    (True, torch.Size([2, 8]))
    """

    def __init__(self, width: int, *, reach: float, clip_norm: float) -> None:
        super().__init__()
        self.width = limits.whole("width", width, 1, "there is at least one feature")
        self.reach = limits.positive("reach", reach, "features are at most that long")
        limits.positive("clip_norm", clip_norm, "it bounds what one record can do")
        self.total = nn.Linear(2 * width, 1, bias=False)
        nn.init.zeros_(self.total.weight)
        # |x²| ≤ |x|², so (x/r, x²/r²) of what is within reach is no longer than √2
        self._most = clip_target(clip_target(clip_norm, torch.float32), torch.float32) / 2**0.5

    def forward(self, features: Tensor) -> Tensor:
        """Lower the more a record looks like what is learnt, so that going downhill adds its features up."""
        near = features.flatten(1) / self.reach
        if near.shape[1] != self.width:
            raise InvalidInput(f"records have {near.shape[1]} features, but {self.width} are expected.")
        value: Tensor = self.total(-self._most * torch.cat([near, near.square()], 1))
        return value[:, 0]

    @torch.no_grad()
    def standardised(self) -> Standardised:
        """What centres and scales features by the means that the weights hold: a frozen part of the next model.

        A feature's variance is its own as far as it rises above the noise, or else a small part of all features' mean.
        """
        first, second = torch.split(self.total.weight[0].double() / self._most, self.width)
        mean = first * self.reach
        variance = second * self.reach**2 - mean.square()
        least = _LEAST_SHARE * variance.mean().clamp(min=torch.finfo(torch.float32).tiny)
        return Standardised(mean.float(), variance.clamp(min=least).sqrt().float())

    @torch.no_grad()
    def centred(self) -> Standardised:
        """The same, but with one scale for all features: for many of them, whose own are lost in the noise."""
        found = self.standardised()
        return Standardised(found.mean, found.scale.square().mean().sqrt().expand(self.width).clone())


class Standardised(nn.Module):
    """(x − mean) / scale, with constants that are public."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, features: Tensor) -> Tensor:
        return (features.flatten(1) - self.mean) / self.scale


@dataclass(frozen=True)
class FeatureSum(ExampleLoss):
    """The output of :class:`FeatureMoments` for a record's input; labels are not looked at."""

    @property
    def words(self) -> str:
        return "the sum of features, and of their squares"

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        return self.parts(batch).output(model)


def moments_task(model: FeatureMoments, dataset: Dataset, clip_norm: float, steps: int = 1) -> Task:
    """What ``private_update`` trains, in as many steps as the receipt charges, to find a client's own moments.

    Add the update to the weights, then call ``standardised``. With more steps it is the mean of them all, each charged.
    In a federation give ``FeatureSum()`` and ``Sgd(lr=1 / steps)`` to the task of one round instead.
    """
    steps = limits.whole("steps", steps, 1, "a mean takes at least one step")
    constants = PublicConstants(clip_norm=clip_norm, optimiser=Sgd(lr=1.0 / steps))
    return Task(model=model, dataset=dataset, loss=FeatureSum(), constants=constants)
