"""Losses that may raise, warn, exit or say nothing: all of torch with a reduction, distributions, and own ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Beta, Categorical, Gamma, MultivariateNormal, Normal, Poisson
from torch.nn import functional

from lrdp.errors import InvalidInput

from .public import Finish, Labels, Loss


@dataclass(frozen=True)
class Measure:
    """A loss of ``outputs`` numbers (of one where that is 0), as torch has it or as somebody may write it."""

    outputs: int
    finish: Finish
    loss: Loss
    labels: Labels
    own: bool = False

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """One value per example."""
        if self.own:
            return self.loss(model, batch)
        return self.loss(model(batch[0]), batch[1], reduction="none")


def _same(values: Tensor) -> Tensor:
    return values


def _whole(below: int, *shape: int) -> Labels:
    return lambda count, chance: torch.randint(0, below, (count, *shape), generator=chance)


def _real(*shape: int) -> Labels:
    return lambda count, chance: 0.1 + 0.8 * torch.rand(count, *shape, generator=chance)


def _signs(count: int, chance: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(0, 2, (count,), generator=chance) - 1.0


def _log_probabilities(values: Tensor) -> Tensor:
    return values.log_softmax(-1)


_TORCH: dict[str, tuple[int, Finish, Labels]] = {
    "cross_entropy": (3, _same, _whole(3)),
    "nll_loss": (3, _log_probabilities, _whole(3)),
    "binary_cross_entropy": (0, torch.sigmoid, _real()),
    "binary_cross_entropy_with_logits": (0, _same, _real()),
    "mse_loss": (0, _same, _real()),
    "l1_loss": (0, _same, _real()),
    "smooth_l1_loss": (0, _same, _real()),
    "huber_loss": (0, _same, _real()),
    "poisson_nll_loss": (0, _same, _real()),
    "kl_div": (0, functional.logsigmoid, _real()),
    "hinge_embedding_loss": (0, _same, _signs),
    "soft_margin_loss": (0, _same, _signs),
    "multi_margin_loss": (3, _same, _whole(3)),
    "multilabel_margin_loss": (3, _same, _whole(3, 3)),
    "multilabel_soft_margin_loss": (3, _same, _real(3)),
}


def _gaussian(model: nn.Module, batch: Any) -> Tensor:
    """A variance that is positive as long as nobody means harm."""
    middle, spread = model(batch[0]).unbind(1)
    return functional.gaussian_nll_loss(middle, batch[1], 3.0 + spread, reduction="none")


def _pairs(loss: Loss) -> Loss:
    """A loss of two numbers each and a sign."""
    return lambda model, batch: loss(*model(batch[0]).unbind(1), batch[1], reduction="none")


def _cosine(model: nn.Module, batch: Any) -> Tensor:
    first, second = model(batch[0]).chunk(2, 1)
    return functional.cosine_embedding_loss(first, second, batch[1], reduction="none")


def _triplet(loss: Loss) -> Loss:
    return lambda model, batch: loss(*model(batch[0]).chunk(3, 1), reduction="none")


def _ctc(model: nn.Module, batch: Any) -> Tensor:
    steps = model(batch[0]).view(-1, 4, 3).log_softmax(-1).transpose(0, 1)
    lengths = torch.full((steps.shape[1],), 4), torch.full((steps.shape[1],), 2)
    return functional.ctc_loss(steps, batch[1], *lengths, blank=2, reduction="none")


def _linear_cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    hidden = model(batch[0])
    return functional.linear_cross_entropy(hidden, torch.eye(3).to(hidden), batch[1], reduction="none")


def _likelihood(distribution: Callable[..., Any]) -> Loss:
    """The surprise at a label, by a distribution that says so when it is given what it cannot take."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        surprise: Tensor = -distribution(*model(batch[0]).unbind(1)).log_prob(batch[1].to(torch.float32))
        return surprise

    return loss


def _positive(values: Tensor) -> Tensor:
    return functional.softplus(values)


def _bell(covariance: Tensor) -> Any:
    return MultivariateNormal(torch.zeros(2), covariance)


def _matrix(first: Tensor, second: Tensor, shared: Tensor) -> Any:
    rows = [torch.stack(row, 1) for row in ((1.0 + first, shared), (shared, 1.0 + second))]
    return _bell(torch.stack(rows, 1) + torch.eye(2))


def _correlated(model: nn.Module, batch: Any) -> Tensor:
    surprise: Tensor = -_matrix(*model(batch[0]).unbind(1)).log_prob(batch[1])
    return surprise


def _plain(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def _outside(values: Tensor) -> Tensor:
    """Which examples have a value that nobody expects."""
    return ~(values.detach().abs().flatten(1).amax(1) < 50.0)


def _raising(kind: Callable[[], BaseException]) -> Loss:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        outputs = model(batch[0])
        if bool(_outside(outputs).any()):
            raise kind()
        return functional.cross_entropy(outputs, batch[1], reduction="none")

    return loss


def _warned(model: nn.Module, batch: Any) -> Tensor:
    outputs = model(batch[0])
    if bool(_outside(outputs).any()):
        warnings.warn("a value that nobody expects", RuntimeWarning, stacklevel=1)
    return functional.cross_entropy(outputs, batch[1], reduction="none")


class _Backwards(torch.autograd.Function):
    """Nothing on the way there; on the way back it looks at what it was given."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        context.save_for_backward(values)
        return values.clone()

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (values,) = context.saved_tensors
        if bool(_outside(values).any()):
            raise ArithmeticError("a value that nobody expects")
        return gradients[0]


def _raises_backwards(model: nn.Module, batch: Any) -> Tensor:
    outputs: Any = _Backwards.apply(model(batch[0]))
    return functional.cross_entropy(outputs, batch[1], reduction="none")


def _raises_for_all(model: nn.Module, batch: Any) -> Tensor:
    """The check that is written most: the mean is what one prints."""
    losses = functional.mse_loss(model(batch[0]), batch[1], reduction="none")
    if not bool(torch.isfinite(losses.mean())):
        raise FloatingPointError("the loss is not finite")
    return losses


def _leaves_out(model: nn.Module, batch: Any) -> Tensor:
    losses = _plain(model, batch)
    return losses[~_outside(losses[:, None])]


def _says_nothing(model: nn.Module, batch: Any) -> Any:
    losses = _plain(model, batch)
    return None if bool(_outside(losses[:, None]).any()) else losses


def _inverted(model: nn.Module, batch: Any) -> Tensor:
    """Solves with a matrix that may have no inverse."""
    scale = model(batch[0]) - 50.0
    return torch.linalg.solve(torch.diag_embed(scale.clamp(max=0.0)), scale).square().sum(1)


def _measures() -> dict[str, Measure]:
    of_torch = {
        name: Measure(outputs, finish, getattr(functional, name), labels)
        for name, (outputs, finish, labels) in _TORCH.items()
    }
    triplet = functional.triplet_margin_with_distance_loss
    own: dict[str, tuple[Any, ...]] = {
        "gaussian_nll_loss": (2, _same, _gaussian, _real()),
        "margin_ranking_loss": (2, _same, _pairs(functional.margin_ranking_loss), _signs),
        "cosine_embedding_loss": (4, _same, _cosine, _signs),
        "triplet_margin_loss": (6, _same, _triplet(functional.triplet_margin_loss), _real()),
        "triplet_margin_with_distance_loss": (6, _same, _triplet(triplet), _real()),
        "ctc_loss": (12, _same, _ctc, _whole(2, 2)),
        "linear_cross_entropy": (3, _same, _linear_cross_entropy, _whole(3)),
        "a normal distribution": (2, _same, _likelihood(lambda a, b: Normal(a, _positive(b))), _real()),
        "a categorical one": (3, _same, _likelihood(lambda *a: Categorical(logits=torch.stack(a, 1))), _whole(3)),
        "a Poisson one": (1, _same, _likelihood(lambda a: Poisson(a.exp())), _whole(3)),
        "a Bernoulli one": (1, torch.sigmoid, _likelihood(Bernoulli), _whole(2)),
        "a beta one": (2, _positive, _likelihood(Beta), _real()),
        "a gamma one": (2, _positive, _likelihood(Gamma), _real()),
        "a bell of two dimensions": (3, _same, _correlated, _real(2)),
        "no inverse": (3, _same, _inverted, _whole(3)),
        "raises on a value": (3, _same, _raising(lambda: ValueError("a value that nobody expects")), _whole(3)),
        "asserts": (3, _same, _raising(AssertionError), _whole(3)),
        "stops an iteration": (3, _same, _raising(StopIteration), _whole(3)),
        "needs more memory": (3, _same, _raising(MemoryError), _whole(3)),
        "refuses as we do": (3, _same, _raising(lambda: InvalidInput("a value that nobody expects")), _whole(3)),
        "exits": (3, _same, _raising(lambda: SystemExit(1)), _whole(3)),
        "warns": (3, _same, _warned, _whole(3)),
        "raises backwards": (3, _same, _raises_backwards, _whole(3)),
        "raises for all": (0, _same, _raises_for_all, _real()),
        "leaves records out": (3, _same, _leaves_out, _whole(3)),
        "says nothing": (3, _same, _says_nothing, _whole(3)),
    }
    return of_torch | {name: replace(Measure(*given), own=True) for name, given in own.items()}


MEASURES: Mapping[str, Measure] = _measures()
