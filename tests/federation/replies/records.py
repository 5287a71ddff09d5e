"""Neighbouring data sets, and records that are odd in every way we know."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import default_collate

from lrdp.errors import InvalidInput
from lrdp.training import (
    Dataset,
    TensorRecords,
)

from .losses import Measure
from .public import LARGEST, OTHERS, PLACES, TOKENS, WIDTH, source


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
