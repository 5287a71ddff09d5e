"""Weights, losses, layers and data sets with which one record shows itself, and what of a reply anybody can see.

A server chooses the weights. It knows a record, its *target*, and asks whether it is among a client's: with a layer
that answers to the target alone, it can have that record overflow, be undefined, or raise whatever a loss raises.
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Bernoulli, Beta, Categorical, Gamma, MultivariateNormal, Normal, Poisson
from torch.nn import functional
from torch.utils.data import default_collate

from lrdp.accounting import FixedSizeGaussian, SampledGaussian
from lrdp.errors import InvalidInput
from lrdp.ledger import Receipt
from lrdp.ledger.receipt import issue
from lrdp.training import (
    Constant,
    Dataset,
    Execution,
    PublicConstants,
    Sgd,
    StepDone,
    Task,
    TensorRecords,
    Update,
    check_gradients,
    private_update,
    unaccounted_private_update,
)
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import Randomness, prepared

WIDTH, HIDDEN, TOKENS, PLACES = 16, 4, 12, 3
OTHERS, BATCH, LEAST = 9, 7, 8
"""With the target they are ten, of which seven are drawn in a step: it is one of them seven times in ten."""
LARGEST = float(torch.finfo(torch.float32).max)

Finish = Callable[[Tensor], Tensor]
Loss = Callable[..., Tensor]
Labels = Callable[[int, torch.Generator], Tensor]


def source(*seeds: int) -> torch.Generator:
    """Numbers that are the same in every run."""
    number = 0
    for seed in seeds:
        number = 1_000_003 * number + seed
    return torch.Generator().manual_seed(number)


# ---------------------------------------- losses
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


_TORCH = {
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
    own = {
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
    return of_torch | {name: Measure(*given, own=True) for name, given in own.items()}


MEASURES: Mapping[str, Measure] = _measures()


# ---------------------------------------- layers
class _Raw(nn.Module):
    """Parameters of its own, used as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, values: Tensor) -> Tensor:
        return values * self.scale + self.shift


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(HIDDEN, 2, batch_first=True)

    def forward(self, values: Tensor) -> Tensor:
        attended: Tensor = self.attend(values, values, values)[0]
        return attended


class _Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.remember = nn.GRU(HIDDEN, HIDDEN, batch_first=True)

    def forward(self, values: Tensor) -> Tensor:
        remembered: Tensor = self.remember(values)[0]
        return remembered[:, -1]


def _in_steps(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (HIDDEN, -1)), layer, nn.Flatten())


LAYERS: Mapping[str, tuple[Callable[[], nn.Module], int]] = {
    "linear": (lambda: nn.Linear(WIDTH, HIDDEN), HIDDEN),
    "convolution": (lambda: _in_steps(nn.Conv1d(HIDDEN, 2, 3)), 4),
    "embedding": (lambda: nn.Sequential(nn.Embedding(TOKENS, HIDDEN), nn.Flatten()), PLACES * HIDDEN),
    "layer norm": (lambda: nn.LayerNorm(WIDTH), WIDTH),
    "group norm": (lambda: _in_steps(nn.GroupNorm(2, HIDDEN)), WIDTH),
    "recurrent": (lambda: _in_steps(_Last()), HIDDEN),
    "attention": (lambda: _in_steps(_Attention()), WIDTH),
    "raw": (_Raw, WIDTH),
}


class Aimable(nn.Module):
    """A gate, which weights can shut for everybody but one; a layer; and a head."""

    def __init__(self, layer: str, measure: Measure) -> None:
        super().__init__()
        make, features = LAYERS[layer]
        self.gate = nn.Sequential() if layer == "embedding" else nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.layer, self.head = make(), nn.Linear(features, max(1, measure.outputs))
        self._measure = measure

    def forward(self, values: Tensor) -> Tensor:
        outputs = self._measure.finish(self.head(self.layer(self.gate(values))))
        return outputs if self._measure.outputs else outputs[:, 0]


# ---------------------------------------- weights
def _random(model: nn.Module, chance: torch.Generator, scale: float = 0.3) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=chance))


def _finite(values: Tensor) -> Tensor:
    return values.clamp(-LARGEST, LARGEST).to(torch.float32)


def _shut(model: Any, target: Tensor, strength: float) -> None:
    """The gate, or the row of a token, so that the target alone gets through, as large as ``strength``."""
    with torch.no_grad():
        for name, parameter in model.layer.named_parameters():
            if "bias" in name or "shift" in name:
                parameter.zero_()
        if len(model.gate) == 0:
            model.layer[0].weight.zero_()
            model.layer[0].weight[target[0]] = strength
            return
        # Not all alike, for a layer that normalises would make nothing of that.
        directions = torch.outer(strength * torch.linspace(0.5, 1.0, WIDTH).double(), target.double())
        model.gate[0].weight.copy_(_finite(directions))
        model.gate[0].bias.copy_(_finite(-0.75 * directions @ target.double()))


def _headed(model: Any, strength: float, signs: Sequence[int]) -> None:
    """A head that multiplies by ``strength``, with these signs along each output's features."""
    with torch.no_grad():
        pattern = torch.tensor(signs, dtype=torch.float64).repeat(model.head.weight.shape[1])
        model.head.weight.copy_(_finite(strength * pattern[: model.head.weight.shape[1]].expand_as(model.head.weight)))


def _aimed(least: float, most: float, head: float = 0.0, signs: Sequence[int] = (1,)) -> Callable[..., None]:
    """The gate of any strength between these two; without a ``head`` the head is an ordinary one."""

    def aim(model: nn.Module, target: Tensor, chance: torch.Generator) -> None:
        _random(model, chance)
        height = math.log(least) + (math.log(most) - math.log(least)) * float(torch.rand((), generator=chance))
        _shut(model, target, math.exp(height))
        if head:
            _headed(model, head, signs)

    return aim


def _everywhere(scale: float) -> Callable[..., None]:
    def aim(model: nn.Module, target: Tensor, chance: torch.Generator) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(_finite(scale * (2.0 * torch.rand(parameter.shape, generator=chance).double() - 1.0)))

    return aim


def _wild(model: nn.Module, target: Tensor, chance: torch.Generator) -> None:
    """Of every size that a float has."""
    with torch.no_grad():
        for parameter in model.parameters():
            sizes = 10.0 ** (83.0 * torch.rand(parameter.shape, generator=chance).double() - 45.0)
            parameter.copy_(_finite(sizes * torch.randn(parameter.shape, generator=chance)))


ORDINARY_LIMIT = 1e4
"""What a policy allows of a weight unless its administrator says otherwise."""
MODEST = {
    "large": _aimed(1.0, 500.0, ORDINARY_LIMIT),
    "large below zero": _aimed(1.0, 500.0, -ORDINARY_LIMIT),
    "large and opposed": _aimed(1.0, 500.0, ORDINARY_LIMIT, (1, -1)),
    "zeros": _everywhere(0.0),
    "denormal": _everywhere(1e-41),
}
HUGE = {
    # A sixteenth of the largest float, times a norm of 16: infinite for the target, and finite for everybody else.
    "overflowing at the gate": _aimed(3e37, 4e37),
    "overflowing at the head": _aimed(1e4, 1e37, LARGEST),
    "overflowing below zero": _aimed(1e4, 1e37, -LARGEST),
    "undefined": _aimed(1e20, 1e37, LARGEST, (1, -1)),
    "near overflow": _everywhere(LARGEST),
    "near the root of overflow": _everywhere(math.sqrt(LARGEST)),
    "wild": _wild,
}
AIMS: Mapping[str, Callable[..., None]] = MODEST | HUGE


# ---------------------------------------- records
@dataclass(frozen=True)
class People:
    """A target, those who are there anyhow, and one as ordinary as they are."""

    target: tuple[Tensor, Tensor]
    others: tuple[Tensor, Tensor]
    another: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, layer: str, measure: Measure, seed: int) -> People:
        chance = source(seed, 5)
        labels = measure.labels(OTHERS + 2, chance)
        if layer == "embedding":
            inputs = torch.randint(1, TOKENS, (OTHERS + 2, PLACES), generator=chance)
            inputs[0] = 0
        else:
            inputs = torch.randn(OTHERS + 2, WIDTH, generator=chance)
            inputs[0] *= 4.0 / inputs[0].norm()
        return cls((inputs[0], labels[0]), (inputs[2:], labels[2:]), (inputs[1], labels[1]))

    def neighbours(self, change: str, place: int = 0) -> tuple[Dataset, Dataset]:
        """With the target at ``place``; and without it, or with an ordinary record instead."""
        without = TensorRecords(*self.others) if change == "removed" else self._with(self.another, place)
        return self._with(self.target, place), without

    def _with(self, one: tuple[Tensor, Tensor], place: int) -> TensorRecords:
        parts = zip(self.others, one, strict=True)
        return TensorRecords(*(torch.cat([many[:place], single[None], many[place:]]) for many, single in parts))


CHANGES = ("removed", "replaced")


class Listed:
    """A map-style data set; what can be called is called, and may raise."""

    def __init__(self, records: Sequence[Any]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> Any:
        record = self._records[number]
        return record() if callable(record) else record


class Fetched(Listed):
    """Torch's own protocol for several at once."""

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        return [self[number] for number in numbers]


class Columned(Listed):
    """Several at once in columns, as ``TensorRecords`` has them."""

    def columns_at(self, numbers: NDArray[np.int64]) -> Any:
        return tuple(default_collate([self[number] for number in numbers.tolist()]))


class Skipping(Listed):
    """Leaves out what it cannot read, as many a loader does."""

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        return [record for record in map(self._read, numbers) if record is not None]

    def _read(self, number: int) -> Any:
        try:
            return self[number]
        except (OSError, ValueError):
            return None


def _raises(problem: Callable[[], BaseException]) -> Callable[[Any], Any]:
    def odd(record: Any) -> Any:
        def read() -> Any:
            raise problem()

        return read

    return odd


class _Speechless(Exception):
    """An error that fails when it is asked what it is about."""

    def __str__(self) -> str:
        raise ValueError("no words")


def _warns(record: Any) -> Any:
    def read() -> Any:
        warnings.warn("a record that is read with difficulty", UserWarning, stacklevel=1)
        return record

    return read


def _input(change: Callable[[Tensor], Any]) -> Callable[[Any], Any]:
    return lambda record: (change(record[0]), record[1])


def _label(change: Callable[[Tensor], Any]) -> Callable[[Any], Any]:
    return lambda record: (record[0], change(record[1]))


ODD: Mapping[str, Callable[[Any], Any]] = {
    "cannot be read": _raises(lambda: OSError("no such file")),
    "has no such number": _raises(IndexError),
    "has no such key": _raises(lambda: KeyError("age")),
    "ends an iteration": _raises(StopIteration),
    "ends the process": _raises(lambda: SystemExit(1)),
    "is cancelled": _raises(asyncio.CancelledError),
    "leaves one speechless": _raises(_Speechless),
    "is refused as we refuse": _raises(lambda: InvalidInput("an age below zero")),
    "warns": _warns,
    "is shorter": _input(lambda value: value[:-1]),
    "is longer": _input(lambda value: torch.cat([value, value])),
    "is empty": _input(lambda value: value[:0]),
    "has a dimension more": _input(lambda value: value[None]),
    "has a dimension less": _input(lambda value: value[0]),
    "is double": _input(lambda value: value.double()),
    "is half": _input(lambda value: value.half()),
    "is whole": _input(lambda value: value.long()),
    "is complex": _input(lambda value: value.to(torch.complex64)),
    "is sparse": _input(lambda value: value.to_sparse()),
    "is nowhere": _input(lambda value: value.to("meta")),
    "is trained": _input(lambda value: value.clone().requires_grad_()),
    "is an array": _input(lambda value: value.numpy()),
    "is a list": _input(lambda value: value.tolist()),
    "is text": _input(lambda value: "63 years"),
    "is None": lambda record: None,
    "is a word": lambda record: "unknown",
    "has an input of None": _input(lambda value: None),
    "has one part": lambda record: record[:1],
    "has three parts": lambda record: (*record, record[1]),
    "is a dict": lambda record: {"input": record[0], "label": record[1]},
    "is undefined": _input(lambda value: torch.full_like(value, torch.nan)),
    "is infinite": _input(lambda value: torch.full_like(value, torch.inf)),
    "is huge": _input(lambda value: torch.full_like(value, LARGEST)),
    "has no label": _label(lambda value: None),
    "has a label in words": _label(lambda value: "ill"),
    "has a fractional label": _label(lambda value: 0.5),
    "has a label too large": _label(lambda value: value + 7),
    "has a label too small": _label(lambda value: value - 7),
    "has an ignored label": _label(lambda value: torch.full_like(value, -100)),
    "has two labels": _label(lambda value: torch.stack([value, value])),
}
KINDS: Mapping[str, type[Listed]] = {"one by one": Listed, "fetched": Fetched, "columned": Columned}


def odd_neighbours(people: People, odd: str, change: str, place: int, kind: type[Listed]) -> tuple[Dataset, Dataset]:
    """Ordinary records, and among them or not one that is not."""
    ordinary = list(zip(*people.others, strict=True))
    first, second = ordinary[:place], ordinary[place:]
    without = ordinary if change == "removed" else [*first, people.another, *second]
    return kind([*first, ODD[odd](people.target), *second]), kind(without)


# ---------------------------------------- what can be seen of an update
Train = Callable[[Receipt, Task], Update]


@dataclass(frozen=True)
class Outcome:
    """What of an update does not lie in its noise."""

    raised: str = ""
    charged: bool = False
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    finite: bool = False
    unchanged: bool = True

    @property
    def ordinary(self) -> bool:
        """An update like any other."""
        return not self.raised and self.charged and self.finite and self.unchanged


@dataclass(frozen=True)
class Setting:
    """What else a server or an administrator chooses."""

    rate: float = 0.3
    decay: float = 0.0
    steps: int = 1
    clip_norm: float = 0.5
    mechanism: SampledGaussian = field(
        default_factory=lambda: FixedSizeGaussian(dataset_size=LEAST, batch_size=BATCH, noise_multiplier=2.0)
    )
    execution: Execution = field(default_factory=Execution)


class Bench:
    """One client's model, loss and records, checked once on ordinary weights, as a client checks them."""

    def __init__(self, model: nn.Module, measure: Measure, dataset: Dataset, setting: Setting, train: Train) -> None:
        self._setting, self._train = setting, train
        optimiser = Sgd(rate=Constant(rate=setting.rate), weight_decay=setting.decay)
        constants = PublicConstants(clip_norm=setting.clip_norm, optimiser=optimiser)
        self._task = Task(model=model, dataset=dataset, loss=measure, constants=constants, execution=setting.execution)
        _random(model, source(1))
        self._problem = ""
        try:
            self._task = replace(self._task, checked=check_gradients(setting.mechanism, self._task))
        except BaseException as problem:  # noqa: BLE001 — a refusal before the charge tells of a record, too
            self._problem = type(problem).__name__

    def outcome(self, weights: Mapping[str, Tensor]) -> Outcome:
        """Of one update from these weights."""
        if self._problem:
            return Outcome(raised=self._problem)
        model, receipt = self._task.model, self._receipt()
        model.load_state_dict(weights)
        try:
            update = self._train(receipt, self._task)
        except BaseException as problem:  # noqa: BLE001 — whatever it is, it is seen
            return Outcome(raised=type(problem).__name__, charged=receipt.redeemed)
        return Outcome(
            charged=receipt.redeemed,
            shapes=tuple((name, tuple(value.shape)) for name, value in update.delta.items()),
            finite=all(bool(torch.isfinite(value).all()) for value in update.delta.values()),
            unchanged=all(torch.equal(value, weights[name]) for name, value in model.state_dict().items()),
        )

    def _receipt(self) -> Receipt:
        setting = self._setting
        return issue(
            mechanism=setting.mechanism,
            steps=setting.steps,
            clip_norm=setting.clip_norm,
            request_key="r",
            entry=1,
        )


def lets_through(receipt: Receipt, task: Task) -> Update:
    """The control: trains on every record at once, and lets through whatever becomes of one."""
    receipt.redeem()
    batch = default_collate([task.dataset[number] for number in range(len(task.dataset))])
    losses = task.loss(task.model, batch)
    trained = {name: parameter for name, parameter in task.model.named_parameters() if parameter.requires_grad}
    found = torch.autograd.grad(losses.sum(), list(trained.values()), allow_unused=True)
    gradients = zip(trained.items(), found, strict=True)
    return Update(
        {name: torch.zeros_like(weight) if part is None else part for (name, weight), part in gradients}, receipt.steps
    )


@dataclass(frozen=True)
class Pair:
    """What came of the same weights on two data sets that differ in one record."""

    name: str
    with_target: Outcome
    without: Outcome

    @property
    def told_apart(self) -> bool:
        """Whether a server that sees no more than this knows which is which."""
        return self.with_target != self.without


def weights_of(model: nn.Module, aim: str, target: Tensor, *seeds: int) -> dict[str, Tensor]:
    """The weights of an attack, copied."""
    AIMS[aim](model, target, source(*seeds))
    return {name: value.clone() for name, value in model.state_dict().items()}


def aimed_pairs(
    layer: str,
    loss: str,
    cases: Sequence[tuple[str, int]],
    *,
    changes: Sequence[str] = CHANGES,
    train: Train = private_update,
) -> Iterator[Pair]:
    """Every case, an aim and its seed, on neighbours of each kind in turn."""
    measure, setting = MEASURES[loss], Setting()
    people = People.of(layer, measure, seed=3)
    for place, change in enumerate(changes):
        both = people.neighbours(change, OTHERS // 2)
        benches = [Bench(Aimable(layer, measure), measure, dataset, setting, train) for dataset in both]
        for aim, seed in cases[place :: len(changes)]:
            weights = weights_of(Aimable(layer, measure), aim, people.target[0], seed)
            yield Pair(f"{layer}, {loss}, {aim}, {seed}, {change}", *(bench.outcome(weights) for bench in benches))


# ---------------------------------------- what one record does to the sum
class Noted:
    """An optimiser that moves nothing and notes what it is given."""

    moments = 0

    def __init__(self) -> None:
        self._given: dict[int, Tensor] = {}

    def start(self, parameters: Sequence[Tensor]) -> Noted:
        return self

    def step(self, number: int, place: int, noisy: Tensor) -> None:
        self._given[place] = noisy.double().flatten()

    @property
    def vector(self) -> Tensor:
        """All parameters' in one."""
        return torch.cat([self._given[place] for place in sorted(self._given)])


QUIET = FixedSizeGaussian(dataset_size=LEAST, batch_size=BATCH, noise_multiplier=1e-6)
"""So little noise that what one record does is seen."""


def clipped_sums(model: nn.Module, loss: Loss, dataset: Dataset, clip_norm: float, draws: int) -> list[Tensor]:
    """Σ clipped gradients of some steps, in units of the clip norm, but for a millionth of noise."""
    noted, weights = Noted(), {name: value.clone() for name, value in model.state_dict().items()}
    constants = PublicConstants(clip_norm=clip_norm, optimiser=noted)
    task = Task(model=model, dataset=dataset, loss=loss, constants=constants)
    _random(model, source(1))
    task = replace(task, checked=check_gradients(QUIET, task))
    model.load_state_dict(weights)
    return [_noted(task, noted, draw) * BATCH / clip_norm for draw in range(draws)]


def _noted(task: Task, noted: Noted, draw: int) -> Tensor:
    """Of the draw of this number, the same for data sets of the same size: neighbours are compared slot by slot."""
    randomness = Randomness(sampling=Keystream(bytes([draw] * 32)), noise=Keystream(bytes([255] * 32)))
    with prepared(QUIET, task) as ready:
        ready.run(1, randomness)
    return noted.vector


@contextmanager
def anomalies_detected() -> Iterator[None]:
    """Torch's own search for what is not finite in a backward pass, which raises where it finds it."""
    torch.autograd.set_detect_anomaly(True)
    try:
        yield
    finally:
        torch.autograd.set_detect_anomaly(False)


# ---------------------------------------- what it costs
TIMED_ROWS, TIMED_STEPS = 64, 40


class _TimedRaw(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256, 256) / 16)

    def forward(self, values: Tensor) -> Tensor:
        return values @ self.weight


TIMED: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)), (256,)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.LazyLinear(2)),
        (3, 16, 16),
    ),
    "fallback": (lambda: nn.Sequential(_TimedRaw(), nn.ReLU(), nn.Linear(256, 2)), (256,)),
}


def seconds_of_a_step(form: str, record: str) -> float:
    """The median time of a step on records of which one is ``finite``, ``undefined``, or makes the loss ``raise``."""
    make, shape = TIMED[form]
    inputs = torch.randn(TIMED_ROWS + 1, *shape, generator=source(1))
    inputs[0] = {"finite": 0.0, "undefined": torch.nan, "raising": 1e6}[record]
    model = make()
    model(inputs[1:2])
    ends: list[float] = []

    def loss(given: nn.Module, batch: Any) -> Tensor:
        if bool((batch[0].amax(tuple(range(1, batch[0].dim()))) > 1e5).any()):
            raise ValueError("a value that nobody expects")
        return functional.cross_entropy(given(batch[0]), batch[1], reduction="none")

    def observe(done: StepDone) -> None:
        ends.append(done.seconds)

    task = Task(
        model=model,
        dataset=TensorRecords(inputs, torch.zeros(TIMED_ROWS + 1, dtype=torch.int64)),
        loss=loss,
        constants=PublicConstants(clip_norm=1.0, optimiser=Sgd(rate=Constant(rate=1e-3))),
        execution=Execution(observe=observe),
    )
    mechanism = FixedSizeGaussian(dataset_size=TIMED_ROWS + 1, batch_size=TIMED_ROWS, noise_multiplier=1.0)
    unaccounted_private_update(mechanism, TIMED_STEPS, task)
    return statistics.median(np.diff(ends).tolist())


def slowdowns(records: Sequence[str] = ("undefined", "raising")) -> dict[str, dict[str, float]]:
    """How many times longer a step takes if one of its 64 records is not finite or raises, for each form."""
    return {
        form: {record: seconds_of_a_step(form, record) / seconds_of_a_step(form, "finite") for record in records}
        for form in TIMED
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    json.dump(slowdowns(sys.argv[1:] or ("undefined", "raising")), sys.stdout, indent=1)
