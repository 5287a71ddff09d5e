"""Losses by example. Each says what it is: its values, what it asks of a record, what it compares an output with.

Whatever a user calls a loss becomes one of these at once (:mod:`lrdp.training.torch_losses`), and nothing asks later
what kind it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.training.parts import Parts, as_classes, fields_told, parted, types_told

Loss = Callable[..., Tensor]


class ExampleLoss(ABC):
    """A loss with one value per example.

    ``checks`` says that ``check`` looks at records: then all are read before the first update. A function
    ``loss(model, batch)`` is enough for a task; this is for a loss that can also tell a bad record from a good one.

    >>> class Tilted(ExampleLoss):
    ...     checks = True
    ...     words = "the absolute error, at half the price above the truth"
    ...
    ...     def __call__(self, model, batch):
    ...         short = batch[1] - model(batch[0])[:, 0]
    ...         return short.clamp(min=0) + 0.5 * (-short).clamp(min=0)
    ...
    ...     def check(self, batch):
    ...         if bool((batch[1] < 0).any()):
    ...             raise InvalidInput("an age must not be negative: at least one is.")
    >>> import torch
    >>> Tilted()(nn.Identity(), (torch.tensor([[1.0], [2.0]]), torch.tensor([2.0, 0.0])))
    tensor([1., 1.])
    """

    checks: ClassVar[bool] = False

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, in words for whoever tries it."""

    @abstractmethod
    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """One value per example."""

    def check(self, batch: Any) -> None:  # noqa: B027 - nothing to check is an answer, too
        """Raise if a record cannot be trained on."""

    def parts(self, batch: Any) -> Parts:
        """What the model is called with, and what its output is compared with."""
        return parted(batch)

    def rows_each(self, batch: Any) -> int:  # noqa: ARG002 - here there is one, whatever they are
        """How many rows the model is given for each example, one after the other."""
        return 1

    def told(self, model: nn.Module, blank: Any) -> tuple[str, ...]:
        """How a record of this form is taken, for whoever tries the task."""
        return (*fields_told(self.parts(blank), blank), *types_told(model, blank))

    def in_float64(self) -> ExampleLoss:
        """The same, for a copy of the model in float64."""
        return self


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(ExampleLoss):
    """Classification of records with labels 0 to ``classes`` − 1: ``(input, label)``, or dicts with a ``label``.

    >>> import torch
    >>> CrossEntropy(classes=3)(nn.Identity(), (torch.zeros(2, 3), torch.tensor([0, 2])))
    tensor([1.0986, 1.0986])
    """

    checks: ClassVar[bool] = True
    classes: int

    def __post_init__(self) -> None:
        limits.whole("classes", self.classes, 2, "with one class there is nothing to tell apart")

    @property
    def words(self) -> str:
        return f"cross-entropy over {self.classes} classes"

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        parts = self.parts(batch)
        return functional.cross_entropy(*as_classes(parts.output(model), parts.target), reduction="none")

    def check(self, batch: Any) -> None:
        labels = self.parts(batch).target
        if labels.is_floating_point() or bool(((labels < 0) | (labels >= self.classes)).any()):
            raise InvalidInput(
                f"labels must be whole numbers from 0 to {self.classes - 1}: at least one record has another."
            )


@dataclass(frozen=True, kw_only=True)
class NamedCrossEntropy(CrossEntropy):
    """Classification of records that are dicts, with labels 0 to ``classes`` − 1 in the field ``label``.

    All other fields are arguments of the model, by their names. It returns logits, or an object with ``logits``.

    >>> NamedCrossEntropy(classes=2, label="diagnosis").words
    'cross-entropy over 2 classes'
    """

    label: str = "label"

    def parts(self, batch: Any) -> Parts:
        return parted(batch, self.label)


@dataclass(frozen=True)
class OwnLoss(ExampleLoss):
    """A user's ``loss(model, batch)``, taken as it is."""

    given: Loss

    @property
    def words(self) -> str:
        return f"{getattr(self.given, '__name__', type(self.given).__name__)}(model, batch), as it is"

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        return self.given(model, batch)

    def told(self, model: nn.Module, blank: Any) -> tuple[str, ...]:  # noqa: ARG002 - it takes records apart itself
        return ()

    def in_float64(self) -> ExampleLoss:
        return OwnLoss(deepcopy(self.given).double()) if isinstance(self.given, nn.Module) else self
