"""From a table's columns to numbers, by public constants alone: nothing is fitted on patients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lrdp.errors import InvalidInput

Floats = NDArray[np.float64]
_WIDEST: Final = 2.0  # spreads from the middle: a value beyond counts as that
_TINY: Final = 1e-9
_LONGEST: Final = 4.0  # most records are shorter than that, and one that is not is cut on its own


@dataclass(frozen=True, kw_only=True)
class Column:
    """How one column is read.

    A *measurement* is (value − ``middle``) / ``spread``, within ±2; with ``choices`` it is one number, 0 or 1, for each
    of them. A value that is absent or one of ``missing`` counts as 0, and with ``indicator`` a 1 beside it says so.
    Middle and spread are textbook values of the measurement, known before anybody looked at these patients.
    """

    middle: float = 0.0
    spread: float = 1.0
    choices: tuple[float, ...] = ()
    missing: tuple[float, ...] = ()
    indicator: bool = False

    def __post_init__(self) -> None:
        if not self.spread > 0:
            raise InvalidInput(f"spread must be above 0, got {self.spread}: values are divided by it. Nothing was run.")

    def read(self, values: Floats) -> Floats:
        """One row per patient."""
        absent = np.isnan(values) | np.isin(values, self.missing)
        if self.choices:
            found = (values[:, None] == np.array(self.choices)).astype(np.float64)
        else:
            found = np.clip((values - self.middle) / self.spread, -_WIDEST, _WIDEST)[:, None]
        found = np.where(absent[:, None], 0.0, found)
        return np.hstack([found, absent[:, None]]) if self.indicator else found


def features(columns: Mapping[str, Column], table: Mapping[str, Floats]) -> NDArray[np.float32]:
    """Of all columns, in their order; each record at most of length 2, by itself."""
    found = np.hstack([column.read(table[name]) for name, column in columns.items()])
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    shares = np.minimum(1.0, _LONGEST / np.maximum(lengths, _TINY)) / 2
    return np.asarray(found * shares, np.float32)
