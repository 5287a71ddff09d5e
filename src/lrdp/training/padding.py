"""Records of every length in one public form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.training.records import Dataset, check_dataset, records_at
from lrdp.training.tensors import as_tensors

FieldName = str | int


@dataclass(frozen=True)
class Padded:
    """A data set whose sequences are cut or filled up to ``max_length`` along their first dimension, each by itself.

    A record is a mapping, a dataclass, a named tuple or a tuple; what comes out is a dict. ``fill`` names the sequences
    and what fills each up: a whole number makes all whole, a fraction makes all float32. ``keep`` names the fields to
    be taken as they are; all others are left out. ``mask`` is a further field with a 1 for each place of the first
    sequence that is the record's own, unless the record brings one along in ``fill``, or it is None. ``attention`` is
    the same in truth values of the shape (1, 1, max_length), which attention takes as it is: some models look
    in a plain mask whether anything in the batch is filled up, and then examples have to run one by one.

    Guarantees: what a record becomes depends on that record and on these public values alone.

    >>> Padded([([7, 2, 9], 1)], max_length=5, fill={0: 0}, keep=[1])[0]
    {0: tensor([7, 2, 9, 0, 0]), 1: tensor(1), 'attention_mask': tensor([1, 1, 1, 0, 0])}
    """

    dataset: Dataset
    _: KW_ONLY
    max_length: int
    fill: Mapping[FieldName, float]
    keep: Collection[FieldName] = ()
    mask: str | None = "attention_mask"
    attention: str | None = None

    def __post_init__(self) -> None:
        check_dataset(self.dataset)
        limits.keep(
            self, max_length=limits.whole("max_length", self.max_length, 1, "a sequence has at least one place")
        )
        if not self.fill:
            raise InvalidInput("fill must name at least one sequence and what fills it up, as in {'input_ids': 0}.")
        if isinstance(self.keep, str) or set(self.keep) & {*self.fill, self.mask, self.attention}:
            raise InvalidInput(
                f"keep must be a list of fields that are neither filled up nor a mask, got {self.keep!r}."
            )

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> dict[FieldName, Tensor]:
        return self._shaped(self.dataset[number])

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[FieldName, Tensor]]:
        """Some records, read at once where the data set can."""
        return [self._shaped(record) for record in records_at(self.dataset, list(numbers))]

    def _shaped(self, record: Any) -> dict[FieldName, Tensor]:
        sequences = {name: self._sequence(name, _field(record, name)) for name in self.fill}
        kept = as_tensors({name: _field(record, name) for name in self.keep})
        shaped: dict[FieldName, Tensor] = {
            name: self._filled(name, values) for name, values in sequences.items()
        } | kept
        own = torch.arange(self.max_length) < len(next(iter(sequences.values())))
        if self.mask is not None and self.mask not in self.fill:
            shaped[self.mask] = own.long()
        if self.attention is not None:
            shaped[self.attention] = own[None, None]
        return shaped

    def _sequence(self, name: FieldName, given: Any) -> Tensor:
        values = as_tensors({name: list(given) if isinstance(given, tuple) else given})[name]
        if not isinstance(values, Tensor) or values.dim() == 0:
            raise InvalidInput(f"field {name!r} holds no sequence of numbers: name it in keep, or leave it out.")
        return values

    def _filled(self, name: FieldName, values: Tensor) -> Tensor:
        filled = torch.full((self.max_length, *values.shape[1:]), self.fill[name])
        if len(values) and not torch.can_cast(values.dtype, filled.dtype):
            raise InvalidInput(
                f"field {name!r} holds {values.dtype}, which does not fit the {self.fill[name]!r} that fills it up: "
                f"for fractions fill with a fraction."
            )
        own = min(len(values), self.max_length)
        filled[:own] = values[:own]
        return filled


def _field(record: Any, name: FieldName) -> Any:
    by_name = isinstance(name, str) and not isinstance(record, Mapping)
    try:
        return getattr(record, str(name)) if by_name else record[name]
    except (AttributeError, IndexError, KeyError, TypeError):
        raise InvalidInput(f"a record has no field {name!r}: name those that it has in fill and keep.") from None
