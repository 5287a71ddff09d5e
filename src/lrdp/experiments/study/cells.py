"""A cell: one thing to be computed, told apart from all others by what its result depends on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

Record = Mapping[str, Any]
"""Of values that JSON can express."""


@dataclass(frozen=True)
class Cell:
    """``values`` are all that the result depends on, except the code and the data; JSON can express them."""

    study: str
    values: Record

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @cached_property
    def key(self) -> str:
        """The name of its file: equal for equal values, whatever their order."""
        text = json.dumps([self.study, self.values], sort_keys=True, allow_nan=False)
        return sha256(text.encode()).hexdigest()[:32]

    @property
    def label(self) -> str:
        """For people, on one line."""
        shown = {name: value for name, value in self.values.items() if not isinstance(value, dict | list)}
        return " · ".join(f"{name} {value}" for name, value in shown.items())


@dataclass
class Results:
    """What came out of the cells so far, in the order in which they were named."""

    found: dict[str, tuple[Cell, Record]] = field(default_factory=dict)

    def add(self, cell: Cell, result: Record) -> None:
        self.found[cell.key] = cell, result

    def of(self, cell: Cell) -> Record:
        return self.found[cell.key][1]

    def __iter__(self) -> Iterator[tuple[Cell, Record]]:
        return iter(self.found.values())

    def where(self, **values: Any) -> Iterator[tuple[Cell, Record]]:
        """Those whose cells have these values."""
        for cell, result in self:
            if all(cell.values.get(name) == value for name, value in values.items()):
                yield cell, result
