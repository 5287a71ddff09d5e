"""Private training of a linear head, in closed form: the law of the engine's steps at a hundredth of their time.

For a linear layer under cross-entropy a record's gradient is an outer product, whose length is the product of its
factors' lengths. So a batch's clipped sum is one product of matrices; ``check_against_engine`` compares it with the
engine's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lrdp.accounting import FixedSizeGaussian, FullBatchGaussian, TruncatedPoissonGaussian
from lrdp.training import PublicConstants, Task, TensorRecords, unaccounted_private_update
from lrdp.training import Sgd as EngineSgd

Array = NDArray[np.float32]
Chance = np.random.Generator
Step = TruncatedPoissonGaussian | FullBatchGaussian
CLIP_NORM: Final = 1.0
_BETAS: Final = (0.9, 0.999)
_TINY: Final = 1e-8


@dataclass(frozen=True)
class Share:
    """One client's records; ``inputs`` have a second axis of views where there are several of each."""

    inputs: Array
    labels: NDArray[np.int64]


def flat(lengths: Array) -> Array:
    """What gradients of these lengths are multiplied by: cut to the clip norm."""
    return np.minimum(1.0, CLIP_NORM / np.maximum(lengths, 1e-12)).astype(np.float32)


def automatic(lengths: Array, gamma: float = 0.01) -> Array:
    """C/(|g| + γ): all about equally long (arXiv 2206.07136)."""
    return (CLIP_NORM / (lengths + gamma)).astype(np.float32)


def shorter(lengths: Array, times: float) -> Array:
    """Cut to a clip norm of C/``times``, with noise and rates in units of that: what is short counts for more."""
    return np.minimum(times, CLIP_NORM / np.maximum(lengths, 1e-12)).astype(np.float32)


@dataclass
class Sgd:
    """With or without momentum, from nothing; ``deviation`` is the noise of a coordinate, which it does not need."""

    momentum: float = 0.0
    velocity: Array | float = 0.0

    def step(self, gradient: Array, _deviation: float) -> Array:
        self.velocity = self.momentum * self.velocity + gradient
        return np.asarray(self.velocity, np.float32)


@dataclass
class Adam:
    """``corrected``: the noise's own variance is taken off the second moment (DP-AdamBC, arXiv 2312.14334)."""

    corrected: bool = False
    taken: int = 0
    first: Array | float = 0.0
    second: Array | float = 0.0

    def step(self, gradient: Array, deviation: float) -> Array:
        self.taken += 1
        self.first = _BETAS[0] * self.first + (1 - _BETAS[0]) * gradient
        self.second = _BETAS[1] * self.second + (1 - _BETAS[1]) * gradient**2
        mean, square = self.first / (1 - _BETAS[0] ** self.taken), self.second / (1 - _BETAS[1] ** self.taken)
        if self.corrected:
            square = np.maximum(square - deviation**2, (0.1 * deviation) ** 2)
        return np.asarray(mean / (np.sqrt(square) + _TINY), np.float32)


Optimiser = Callable[[], Sgd | Adam]


@dataclass(frozen=True, kw_only=True)
class How:
    """One way to train. ``kept``: the optimiser's moments outlast a round. ``common``: one normaliser for all.

    ``window`` and ``decay`` are those of the average that is judged: 1 for the last model.
    """

    optimiser: Optimiser = Sgd
    kept: bool = False
    clip: Callable[[Array], Array] = flat
    common: bool = False
    window: int = 1
    decay: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Shares, each with its mechanism, and how long they train."""

    shares: Sequence[Share]
    steps: Sequence[Step]
    classes: int
    rounds: int
    local_steps: int


def drawn(step: Step, count: int, chance: Chance) -> NDArray[np.int64]:
    """A batch of truncated Poisson sampling, or all there is."""
    if isinstance(step, FullBatchGaussian):
        return np.arange(count)
    found = np.flatnonzero(chance.random(count) < step.probability)
    return chance.choice(found, step.cap, replace=False) if len(found) > step.cap else found


def clipped_sum(weights: Array, share: Share, rows: NDArray[np.int64], clip: Callable[[Array], Array]) -> Array:
    """The sum of a batch's clipped gradients: of the mean over a record's views, where it has several."""
    inputs, labels = share.inputs[rows], share.labels[rows]
    views = inputs if inputs.ndim == 3 else inputs[:, None]
    scores = views @ weights.T
    scores -= scores.max(-1, keepdims=True)
    errors = np.exp(scores)
    errors /= errors.sum(-1, keepdims=True)
    errors[np.arange(len(rows)), :, labels] -= 1.0
    errors /= views.shape[1]
    squares = np.einsum("nkl,nkl->n", errors @ errors.swapaxes(1, 2), views @ views.swapaxes(1, 2))
    errors *= clip(np.sqrt(np.maximum(squares, 0.0)))[:, None, None]
    return np.asarray(errors.reshape(-1, errors.shape[-1]).T @ views.reshape(-1, views.shape[-1]))


def trained(given: Federation, how: How, rate: float, seed: int) -> list[Array]:
    """The model after each round; the same batches and noise for the same seed, whatever ``how``."""
    width = given.shares[0].inputs.shape[-1]
    weights: Array = np.zeros((given.classes, width), np.float32)
    models = []
    memories = [how.optimiser() for _ in given.shares]
    middle = float(np.mean([step.normaliser for step in given.steps]))
    for number in range(given.rounds):
        if not how.kept:
            memories = [how.optimiser() for _ in given.shares]
        moved = np.zeros_like(weights)
        for client, (share, step) in enumerate(zip(given.shares, given.steps, strict=True)):
            chance, own = np.random.default_rng([seed, client, number]), weights.copy()
            normaliser = middle if how.common else float(step.normaliser)
            deviation = step.noise_multiplier * CLIP_NORM / normaliser
            for _ in range(given.local_steps):
                whole = clipped_sum(own, share, drawn(step, len(share.labels), chance), how.clip) / normaliser
                noisy = whole + deviation * chance.standard_normal(weights.shape, np.float32)
                own -= rate * memories[client].step(noisy, deviation)
            moved += own - weights
        weights = np.asarray(weights + moved / len(given.shares), np.float32)
        models.append(weights)
    return models


def averaged(models: Sequence[Array], how: How) -> Array:
    """Of the last ``window`` models, each weighing ``decay`` times as much as the one after it."""
    chosen = models[-how.window :]
    return np.average(chosen, axis=0, weights=[how.decay**age for age in range(len(chosen))][::-1])


def private_moments(given: Federation, reach: float, seed: int) -> tuple[Array, Array]:
    """Mean and deviation of inputs by one step of every client's mechanism: as in ``lrdp.training.feature_moments``."""
    width, most = given.shares[0].inputs.shape[-1], CLIP_NORM / 2**0.5
    found = np.zeros(2 * width)
    for client, (share, step) in enumerate(zip(given.shares, given.steps, strict=True)):
        chance = np.random.default_rng([seed, client, given.rounds])
        near = share.inputs[drawn(step, len(share.labels), chance)] / reach
        both = most * np.concatenate([near, near**2], 1)
        both *= flat(np.linalg.norm(both, axis=1))[:, None]
        noise = step.noise_multiplier * CLIP_NORM * chance.standard_normal(2 * width)
        found += (both.sum(0) + noise) / step.normaliser / len(given.shares)
    mean = found[:width] / most * reach
    variance = found[width:] / most * reach**2 - mean**2
    return mean.astype(np.float32), np.sqrt(np.maximum(variance, 1e-3 * max(variance.mean(), 1e-30))).astype(np.float32)


def check_against_engine() -> None:
    """End the program unless the engine moves a head by what is computed here, for records short and long.

    A data set that repeats one record makes every batch the same, so that nothing but the gradient is compared.
    """
    chance = np.random.default_rng(29)
    step = FixedSizeGaussian(dataset_size=11, batch_size=9, noise_multiplier=1e-6)
    for length in (0.1, 1.0, 30.0):
        record = (length * chance.standard_normal((1, 7)) / 7**0.5).astype(np.float32)
        weights, label = chance.standard_normal((3, 7)).astype(np.float32), np.array([2])
        head = nn.Linear(7, 3, bias=False)
        with torch.no_grad():
            head.weight.copy_(torch.from_numpy(weights))
        records = TensorRecords(torch.from_numpy(record.repeat(12, 0)), torch.from_numpy(label.repeat(12)))
        constants = PublicConstants(clip_norm=CLIP_NORM, optimiser=EngineSgd(lr=1.0))
        task = Task(model=head, dataset=records, loss=nn.functional.cross_entropy, constants=constants)
        theirs = -unaccounted_private_update(step, 1, task).delta["weight"].numpy()
        ours = clipped_sum(weights, Share(record, label), np.array([0]), flat)
        if np.linalg.norm(theirs - ours) > 0.01 * np.linalg.norm(ours) + 1e-4:
            sys.exit(f"a record of length {length} moves the engine by {theirs}, and by {ours} here.")
