"""Which part of a record a model sees, and what it should answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from lrdp.errors import InvalidInput

LABELS: Final = ("label", "labels", "target", "targets", "y")
"""The names that data sets give to what is to be learnt."""
_COLUMN: Final = 2


@dataclass(frozen=True)
class Parts:
    """A batch in two: what a model is called with, by place or by name, and the target for its output."""

    placed: tuple[Any, ...]
    named: Mapping[str, Any]
    target: Tensor

    def output(self, model: nn.Module) -> Tensor:
        """What the model says; of transformers' outputs the ``logits``. It is given numbers of its weights' type."""
        placed, named = fitting((self.placed, dict(self.named)), model)
        said = model(*placed, **named)
        output: Tensor = getattr(said, "logits", said)
        return output


def parted(batch: Any, label: str = "") -> Parts:
    """By the form of the records alone: in a tuple the last is the target, in a dict the field that is called so.

    A dict's only other field is handed over as it is, and several by their names, as in ``model(input_ids=…,
    attention_mask=…)``.

    >>> parted({"img": torch.zeros(1, 2), "label": torch.tensor([1])}).target
    tensor([1])
    """
    if isinstance(batch, Mapping):
        field = label or _label_among(batch)
        others = {name: values for name, values in batch.items() if name != field}
        if field not in batch or not others:
            raise InvalidInput(f"a record needs the field {field!r} and at least one other, but has {_names(batch)}.")
        one = len(others) == 1 and not label
        return Parts(tuple(others.values()) if one else (), {} if one else others, batch[field])
    if isinstance(batch, tuple | list) and len(batch) > 1:
        *placed, target = batch
        return Parts(tuple(placed), {}, target)
    raise InvalidInput(
        "a record must have an input and a target, as a tuple (input, target) or a dict with the field 'label': write "
        "loss(model, batch) where there is no target."
    )


def fitting(values: Any, model: nn.Module) -> Any:
    """Numbers in float64, as numpy and pandas have them, in float32 where no weight has float64."""
    if any(parameter.dtype == torch.float64 for parameter in model.parameters()):
        return values
    return tree_map(lambda leaf: leaf.float() if leaf.dtype == torch.float64 else leaf, values)


def fields_told(parts: Parts, batch: Any) -> tuple[str, ...]:
    """Which field is what, in a sentence, where they have names."""
    if not isinstance(batch, Mapping):
        return ()
    label = next(name for name, values in batch.items() if values is parts.target)
    others = ", ".join(name for name in batch if name != label)
    how = "by name" if parts.named else "as it is"
    return (f"Of a record, {others} goes to the model {how}, and {label} is what its answer is compared with.",)


def types_told(model: nn.Module, batch: Any) -> tuple[str, ...]:
    """That numbers are rounded for the model, where they are."""
    leaves = zip(tree_leaves(batch), tree_leaves(fitting(batch, model)), strict=True)
    if all(given.dtype == fits.dtype for given, fits in leaves):
        return ()
    return ("Records hold float64 and the weights do not: numbers are rounded to float32 for the model.",)


def as_classes(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """For losses that take the number of a class: whole numbers of any type, in a column or not; or probabilities."""
    if target.is_floating_point() and target.shape != output.shape:
        raise InvalidInput(
            f"labels are {target.dtype} of shape {tuple(target.shape[1:])}, which is neither the number of a class nor "
            f"a probability for each: turn them into whole numbers, as in labels.long()."
        )
    if target.is_floating_point():
        return output, target.to(output.dtype)
    column = target.dim() == output.dim() == _COLUMN and target.shape[1] == 1 < output.shape[1]
    return output, (target[:, 0] if column else target).long()


def as_outputs(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """For losses that compare element by element: of one shape and type.

    torch would spread a column over a row, and compare each example with all others.
    """
    if output.shape == (*target.shape, 1):
        output = output.squeeze(-1)
    elif target.shape == (*output.shape, 1):
        target = target.squeeze(-1)
    if output.shape != target.shape:
        raise InvalidInput(
            f"the model gives {tuple(output.shape[1:])} for each example and the target is {tuple(target.shape[1:])}: "
            f"this loss compares element by element, so bring them to one shape."
        )
    return output, target.to(output.dtype)


def _label_among(batch: Mapping[str, Any]) -> str:
    found = [name for name in LABELS if name in batch]
    if len(found) == 1:
        return found[0]
    raise InvalidInput(
        f"a record must have one field that is called {', '.join(LABELS[:-1])} or {LABELS[-1]}, but has "
        f"{_names(batch)}: rename the target's, or take NamedCrossEntropy(classes=…, label=…)."
    )


def _names(batch: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, batch))
