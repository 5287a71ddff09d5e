"""torch's own losses, example by example; and whatever else a user calls a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from torch import Tensor, nn
from torch.nn import functional

from lrdp.errors import InvalidInput
from lrdp.training.losses import ExampleLoss, Loss, OwnLoss
from lrdp.training.parts import as_classes, as_outputs

Fit = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
# Those that take an output and a target, by what the target has to be.
_CLASSES: Final = (
    *(nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss, nn.MultiLabelMarginLoss),
    *(functional.cross_entropy, functional.nll_loss, functional.multi_margin_loss, functional.multilabel_margin_loss),
)
_ELEMENTS: Final = (
    *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.KLDivLoss),
    *(nn.PoissonNLLLoss, nn.SoftMarginLoss, nn.HingeEmbeddingLoss, nn.MultiLabelSoftMarginLoss),
    *(functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss, functional.kl_div),
    *(functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits, functional.poisson_nll_loss),
    *(functional.soft_margin_loss, functional.hinge_embedding_loss, functional.multilabel_soft_margin_loss),
)
_FITS: Final[Mapping[Any, Fit]] = {**dict.fromkeys(_CLASSES, as_classes), **dict.fromkeys(_ELEMENTS, as_outputs)}
_BY_WEIGHT: Final = (nn.CrossEntropyLoss, nn.NLLLoss, functional.cross_entropy, functional.nll_loss)
"""Their mean divides by the weights of a batch's labels, or by how many are not ignored."""
_IGNORED: Final = -100  # torch's own
_WRITE: Final = "write loss(model, batch) that returns one value per example, with reduction='none'"


def _as_it_is(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return output, target


def _mean(elements: Tensor) -> Tensor:
    return elements.flatten(1).mean(1) if elements.dim() > 1 else elements


def _sum(elements: Tensor) -> Tensor:
    return elements.flatten(1).sum(1) if elements.dim() > 1 else elements


def _each(elements: Tensor) -> Tensor:
    return elements


_OWN: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "mean": _mean,
    "batchmean": _sum,
    "none": _each,
}


@dataclass(frozen=True)
class OutputLoss(ExampleLoss):
    """A loss of outputs and targets with a ``reduction``, as torch has them, example by example.

    torch's own need not be wrapped: ``Task(loss=F.mse_loss)`` and ``Task(loss=nn.MSELoss())`` are this.

    Guarantees: a mean over a batch is never taken for the losses of examples. The loss is asked for every element, and
    the mean is over each example's own, so torch's mean over a batch is the mean of these; where it is not, the loss is
    refused. A target that torch ignores (-100) is an element whose loss is 0, and is counted: how many others have must
    not change what one record contributes.

    >>> import torch
    >>> OutputLoss(nn.MSELoss())(nn.Identity(), (torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 0.0]])))
    tensor([5.])
    """

    given: Loss

    def __post_init__(self) -> None:
        settings = _settings(self.given)
        if (reduction := settings.get("reduction", "mean")) not in _OWN:
            raise InvalidInput(
                f"reduction must be 'mean' or 'none', got {reduction!r}: a private step adds examples up and divides "
                f"by the public batch size itself."
            )
        if "size_average" in settings or "reduce" in settings:
            raise InvalidInput(f"size_average and reduce change how a loss is added up: {_WRITE}.")
        if any(_kind(self.given) is known for known in _BY_WEIGHT) and _divides_by_labels(settings):
            raise InvalidInput(
                f"with weight or ignore_index torch divides by the labels of the whole batch, so that one record "
                f"changes how much the others count: {_WRITE}."
            )

    @property
    def words(self) -> str:
        name = getattr(_kind(self.given), "__name__", "a loss")
        return f"torch's {name} of each example by itself, never of a batch"

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        parts = self.parts(batch)
        output, target = self._fit(parts.output(model), parts.target)
        return self._own(self._elements(output, target))

    @cached_property
    def _fit(self) -> Fit:
        return _fit_for(_kind(self.given)) or _as_it_is

    @cached_property
    def _own(self) -> Callable[[Tensor], Tensor]:
        return _OWN[_settings(self.given).get("reduction", "mean")]

    @cached_property
    def _elements(self) -> Loss:
        if not isinstance(self.given, nn.Module):
            return partial(self.given, reduction="none")
        every: Any = copy(self.given)
        every.reduction = "none"
        return every  # type: ignore[no-any-return]

    def in_float64(self) -> ExampleLoss:
        return OutputLoss(deepcopy(self.given).double()) if isinstance(self.given, nn.Module) else self


def as_loss(given: Any) -> ExampleLoss:
    """What a user calls a loss: ``loss(model, batch)``, one of torch's, or one that says itself what it is.

    >>> as_loss(nn.MSELoss()).words
    "torch's MSELoss of each example by itself, never of a batch"
    """
    if isinstance(given, ExampleLoss):
        return given
    if isinstance(given, type) and issubclass(given, nn.Module):
        return as_loss(given())
    if not callable(given):
        raise InvalidInput(f"loss must be loss(model, batch) or one of torch's, got {type(given).__name__}.")
    kind = _kind(given)
    if _fit_for(kind) is not None:
        return OutputLoss(given)
    if _is_torch_s(kind):
        name = getattr(kind, "__name__", kind)
        raise InvalidInput(f"torch's {name} takes more than an output and a target, or is changed: {_WRITE}.")
    return OwnLoss(given)


def _kind(given: Any) -> Any:
    """The function of torch's beneath its settings, or the class of a module."""
    if isinstance(given, nn.Module):
        return type(given)
    return _kind(given.func) if isinstance(given, partial) else given


def _fit_for(kind: Any) -> Fit | None:
    """By identity: what a user calls a loss may have no hash."""
    return next((fit for known, fit in _FITS.items() if known is kind), None)


def _settings(given: Any) -> Mapping[str, Any]:
    if isinstance(given, nn.Module):
        return {name: getattr(given, name) for name in ("reduction", "weight", "ignore_index") if hasattr(given, name)}
    if isinstance(given, partial):
        return {**_settings(given.func), **given.keywords}
    return {}


def _divides_by_labels(settings: Mapping[str, Any]) -> bool:
    return settings.get("weight") is not None or settings.get("ignore_index", _IGNORED) != _IGNORED


def _is_torch_s(kind: Any) -> bool:
    if isinstance(kind, type):
        return any(each.__module__ == nn.MSELoss.__module__ for each in kind.__mro__)
    return getattr(kind, "__module__", "") == functional.__name__
