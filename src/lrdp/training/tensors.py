"""One record, whatever it is made of, as tensors.

Each by itself: what becomes of a record never depends on the records beside it, as it would if a batch were padded to
its longest. What no model computes with is refused by the name of its field, and without its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from lrdp.errors import InvalidInput

_PLAIN = {bool, int, float, list}


def stacked(records: Iterable[Any]) -> Any:
    """The records' tensors, a row for each; raises where one has fields or shapes of its own."""
    leaves, forms = zip(*(tree_flatten(as_tensors(record)) for record in records), strict=True)
    if any(form != forms[0] for form in forms):
        raise InvalidInput("records have different fields.")
    return tree_unflatten([torch.stack(column) for column in zip(*leaves, strict=True)], forms[0])


def as_tensors(record: Any) -> Any:
    """Tuples and named tuples stay what they are, mappings and dataclasses become dicts; a list within is one tensor.

    >>> as_tensors({"tokens": [7, 2, 9], "label": 1})
    {'tokens': tensor([7, 2, 9]), 'label': tensor(1)}
    """
    if isinstance(record, list):  # as in torch: its items are fields, as a tuple's are
        return [_tensors(value, f"record[{place}]") for place, value in enumerate(record)]
    return _tensors(record, "record")


@singledispatch
def _tensors(value: object, where: str) -> Any:
    if is_dataclass(value):
        return {field.name: _tensors(getattr(value, field.name), f"{where}.{field.name}") for field in fields(value)}
    if hasattr(value, "__array_interface__"):  # as pictures have it
        return _tensors(np.asarray(value), where)
    raise InvalidInput(
        f"{where} is a {type(value).__name__}, which no model computes with: turn it into numbers, or leave the field "
        f"out, as Padded(keep=…) and remove_columns do."
    )


@_tensors.register
def _(value: str | bytes, where: str) -> Any:  # noqa: ARG001 - what it says is nobody's business
    raise InvalidInput(
        f"{where} holds text, which no model computes with: tokenise it into a field of numbers, or leave the field "
        f"out, as Padded(keep=…) and remove_columns do."
    )


@_tensors.register
def _(value: None, where: str) -> Any:  # noqa: ARG001
    raise InvalidInput(f"{where} holds nothing (None): fill it with a public constant, or leave the field out.")


@_tensors.register
def _(value: Tensor, where: str) -> Tensor:  # noqa: ARG001
    return value


@_tensors.register
def _(value: np.ndarray, where: str) -> Tensor:
    return _of_array(value, where)


@_tensors.register
def _(value: np.generic, where: str) -> Tensor:
    return _of_array(np.array(value), where)


@_tensors.register
def _(value: bool | int | float | complex, where: str) -> Tensor:  # noqa: ARG001
    return torch.tensor(value)


@_tensors.register
def _(value: Mapping, where: str) -> dict[Any, Any]:  # type: ignore[type-arg]  # a class to dispatch on has no arguments
    return {name: _tensors(part, f"{where}[{name!r}]") for name, part in value.items()}


@_tensors.register
def _(value: tuple, where: str) -> Any:  # type: ignore[type-arg]  # as above
    parts = (_tensors(part, f"{where}[{place}]") for place, part in enumerate(value))
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


@_tensors.register
def _(value: list, where: str) -> Any:  # type: ignore[type-arg]  # as above
    if not set(map(type, value)) <= _PLAIN:
        return [_tensors(part, f"{where}[{place}]") for place, part in enumerate(value)]
    try:
        return torch.tensor(value)
    except (RuntimeError, TypeError, ValueError):
        raise InvalidInput(
            f"{where} holds lists that are not all of numbers and of equal length: bring them to a public length first."
        ) from None


def _of_array(values: NDArray[Any], where: str) -> Tensor:
    if values.dtype.kind in "OSUMmV":
        raise InvalidInput(
            f"{where} is an array of {values.dtype}, which no model computes with: turn it into numbers, or leave the "
            f"field out, as Padded(keep=…) and remove_columns do."
        )
    # A copy: arrays may be read-only, or lie backwards in memory.
    return torch.from_numpy(values.copy())
