"""What a model is asked, by kind of outcome: records, a loss for each record alone, scores and their metric."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lrdp.errors import InvalidInput
from lrdp.experiments.hospitals.cohorts import Cohort, OutcomeColumn
from lrdp.experiments.hospitals.columns import Floats
from lrdp.experiments.hospitals.metrics import area, concordance
from lrdp.training import CrossEntropy, ExampleLoss, TensorRecords


class OutcomeQuestion(Protocol):
    """What is asked of a model with ``outputs`` numbers for inputs of this many ``columns``."""

    @property
    def metric(self) -> str:
        """Its name."""

    @property
    def outputs(self) -> int: ...

    @property
    def loss(self) -> ExampleLoss: ...

    def columns(self, inputs: int) -> int:
        """How many numbers the model reads at a time, of records with this many."""

    def records(self, patients: Cohort) -> TensorRecords:
        """As the loss takes them."""

    def scores(self, model: nn.Module, patients: Cohort) -> Floats:
        """The higher, the likelier the outcome, or the sooner."""

    def measured(self, patients: Cohort, scores: Floats) -> float:
        """The metric; NaN where nobody can be told apart."""


@dataclass(frozen=True, kw_only=True)
class YesOrNo:
    """Does it happen? Logits of no and yes."""

    metric: str = "AUC"
    outputs: int = 2

    @property
    def loss(self) -> CrossEntropy:
        return CrossEntropy(classes=self.outputs)

    def columns(self, inputs: int) -> int:
        return inputs

    def records(self, patients: Cohort) -> TensorRecords:
        return TensorRecords(torch.from_numpy(patients.inputs), torch.from_numpy(patients.happened.astype(np.int64)))

    @torch.no_grad()
    def scores(self, model: nn.Module, patients: Cohort) -> Floats:
        logits = model(torch.from_numpy(patients.inputs)).double()
        return np.asarray((logits[:, 1] - logits[:, 0]).numpy())

    def measured(self, patients: Cohort, scores: Floats) -> float:
        return area(patients.happened, scores)


@dataclass(frozen=True)
class Hazard(ExampleLoss):
    """The discrete-time hazard: of each interval that a patient entered, whether the event came in it.

    Records are (inputs by interval, event by interval, whether at risk). A Cox likelihood would compare a patient with
    all others at risk, which one clipped gradient per record cannot; this one needs nobody else.
    """

    checks: ClassVar[bool] = True
    intervals: int

    @property
    def words(self) -> str:
        return f"the hazard in {self.intervals} intervals"

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, events, at_risk = batch
        logits = model(inputs).squeeze(-1)
        losses: Tensor = functional.binary_cross_entropy_with_logits(logits, events, reduction="none")
        summed: Tensor = (losses * at_risk).sum(1)
        return summed

    def check(self, batch: Any) -> None:
        _, events, at_risk = batch
        if events.shape[1:] != (self.intervals,) or bool((events > at_risk).any()):
            raise InvalidInput("an event must lie in an interval that the patient entered: a record has another.")


@dataclass(frozen=True, kw_only=True)
class HowSoon:
    """When does it happen? One logit for each interval: the inputs' share and the interval's own."""

    until: tuple[float, ...]
    metric: str = "C-index"
    outputs: int = 1

    @property
    def loss(self) -> Hazard:
        return Hazard(len(self.until))

    def columns(self, inputs: int) -> int:
        return inputs + len(self.until)

    def records(self, patients: Cohort) -> TensorRecords:
        ends = np.array(self.until)
        begins = np.concatenate([[0.0], ends[:-1]])
        days = patients.days[:, None]
        events = patients.happened[:, None] & (days > begins) & (days <= ends)
        events[:, 0] |= patients.happened & (patients.days <= 0)
        at_risk = (days >= ends) | events  # whoever was lost to follow-up within an interval says nothing about it
        return TensorRecords(self._inputs(patients), *(torch.from_numpy(each).float() for each in (events, at_risk)))

    def _inputs(self, patients: Cohort) -> Tensor:
        count = len(self.until)
        repeated = torch.from_numpy(patients.inputs)[:, None, :].expand(-1, count, -1)
        return torch.cat([repeated, torch.eye(count).expand(len(patients), -1, -1)], 2)

    @torch.no_grad()
    def scores(self, model: nn.Module, patients: Cohort) -> Floats:
        return np.asarray(model(self._inputs(patients)).double().mean((1, 2)).numpy())

    def measured(self, patients: Cohort, scores: Floats) -> float:
        return concordance(patients.happened, patients.days, scores)


def question(outcome: OutcomeColumn) -> OutcomeQuestion:
    """The one that fits."""
    return HowSoon(until=outcome.until) if outcome.days else YesOrNo()


_FIRST_MODEL: Final = 2411


def network(columns: int, hidden: tuple[int, ...], outputs: int) -> nn.Module:
    """Linear layers with ReLU between; without ``hidden`` one that starts at zero. Public, the same in every run."""
    if not hidden:
        layer = nn.Linear(columns, outputs)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer
    with torch.random.fork_rng():
        torch.manual_seed(_FIRST_MODEL)
        widths, layers = (columns, *hidden), list[nn.Module]()
        for wide, narrow in pairwise(widths):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))
