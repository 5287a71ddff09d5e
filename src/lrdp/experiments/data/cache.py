"""Features on disk: computed once, whole or not at all, and checked before they are believed.

On the shelf of :mod:`lrdp.training.shelf`. Its neighbour ``cached_features`` identifies a set by its backbone's weights
and some of its records, so it has to load both; here a set is identified by its files, and is there within a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.training import Shelf

Key = Mapping[str, str | int]
_ROWS: Final = 1000  # written at a time
_WORD: Final = 8


def kept(folder: Path, name: str, key: Key, make: Callable[[], Sequence[Tensor]]) -> list[NDArray[Any]]:
    """The columns that ``make`` returns, a row for each record, from ``folder`` if they were kept there under this key.

    Of several processes one makes them and the others wait.

    Raises:
        InvalidInput: where the folder cannot be written.
    """
    told = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    place = folder / f"{name}-{told}"
    try:
        shelf = Shelf(place)
        found = _looked_at(shelf, key)
        if found is None:
            with files.locked(place / "lock"):
                found = _looked_at(shelf, key)  # somebody else may have made it meanwhile
                return _made(shelf, key, make()) if found is None else found
    except OSError as problem:
        raise InvalidInput(
            f"features cannot be kept in {folder} ({problem.strerror}): nothing was run; name another folder with "
            f"--features or LRDP_FEATURES."
        ) from None
    return found


def _made(shelf: Shelf, key: Key, columns: Sequence[Tensor]) -> list[NDArray[Any]]:
    sums = torch.from_numpy(_sums([column.contiguous().numpy() for column in columns]))
    batches = zip(*(torch.split(column, _ROWS) for column in (*columns, sums)), strict=True)
    return list(shelf.keep(key, len(sums), batches).arrays[:-1])


def _looked_at(shelf: Shelf, key: Key) -> list[NDArray[Any]] | None:
    """The columns, or None where there are none or they are not those that were written."""
    found = shelf.kept(key)
    if found is None:
        return None
    *columns, sums = found.arrays
    return columns if np.array_equal(_sums(columns), sums) else None


def _sums(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """For each row the sum of its bytes, eight at a time and modulo 2^64, and its number: no row of zeros passes."""
    whole = np.arange(1, len(columns[0]) + 1)
    for column in columns:
        flat = column.reshape(len(column), -1)
        words = flat.view(np.uint8 if flat.shape[1] * flat.itemsize % _WORD else np.int64)
        whole += words.sum(axis=1, dtype=np.int64)
    return whole
