"""What anybody can see of an update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from lrdp.accounting import FixedSizeGaussian, SampledGaussian
from lrdp.ledger import Receipt
from lrdp.ledger.receipt import issue
from lrdp.training import (
    Dataset,
    Execution,
    PublicConstants,
    Sgd,
    Task,
    Update,
    check_gradients,
    private_update,
)

from .layers import Aimable
from .losses import MEASURES, Measure
from .public import BATCH, LEAST, OTHERS, source
from .records import CHANGES, People
from .weights import AIMS, randomise

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
        optimiser = Sgd(lr=setting.rate, weight_decay=setting.decay)
        constants = PublicConstants(clip_norm=setting.clip_norm, optimiser=optimiser)
        self._task = Task(model=model, dataset=dataset, loss=measure, constants=constants, execution=setting.execution)
        randomise(model, source(1))
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
