"""Columns of arrays in a private folder, each set under the key of all that it was made from.

The manifest is written last and names its files, so a set is there whole or not at all, even if a process is killed.
"""

from __future__ import annotations

import json
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, treespec_dumps, treespec_loads

from lrdp import files
from lrdp.errors import InvalidInput

Key = Mapping[str, str | int]
_MANIFEST: Final = "manifest.json"
_MOST_BYTES: Final = 1 << 20
_OTHERS: Final = 0o077


@dataclass(frozen=True)
class Columns:
    """Arrays on disk with a row for each record, and how they stand in a record."""

    arrays: tuple[NDArray[Any], ...]
    form: TreeSpec


class Shelf:
    """One set of columns in a folder that nobody else may look into."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & _OTHERS:
            raise InvalidInput(
                f"{folder} has mode {mode:o}, so others could look into it, and what is kept there is as private as "
                f"the records: chmod 700 {folder}. Nothing was written."
            )
        self._folder = folder

    def kept(self, key: Key) -> Columns | None:
        """What was kept under this very key; None if nothing was, or if it cannot be read."""
        try:
            manifest = json.loads(files.read(self._folder / _MANIFEST, _MOST_BYTES))
            if manifest["key"] != key:
                return None
            paths = [self._folder / Path(name).name for name in manifest["files"]]
            return Columns(tuple(np.load(path, mmap_mode="r") for path in paths), treespec_loads(manifest["form"]))
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            return None

    def keep(self, key: Key, count: int, batches: Iterator[Any]) -> Columns:
        """Write all rows of ``batches``, ``count`` of them, in place of what was there."""
        first = next(batches)
        leaves, form = tree_flatten(first)
        names = [f"column-{secrets.token_hex(8)}.npy" for _ in leaves]
        with ExitStack() as stack:
            opened = [stack.enter_context(files.replacing(self._folder / name, files.OWNER_ONLY)) for name in names]
            for file, leaf in zip(opened, leaves, strict=True):
                _write_header(file, leaf, count)
            for batch in chain([first], batches):
                for file, leaf in zip(opened, tree_leaves(batch), strict=True):
                    file.write(leaf.contiguous().numpy().data)
        manifest = {"key": key, "files": names, "form": treespec_dumps(form)}
        files.replace(self._folder / _MANIFEST, json.dumps(manifest).encode(), files.OWNER_ONLY)
        self._clear(names)
        found = self.kept(key)
        if found is None:
            raise InvalidInput(f"what was written to {self._folder} was changed by somebody else meanwhile.")
        return found

    def _clear(self, names: list[str]) -> None:
        """Remove what was there before, and what a killed process left behind."""
        for path in (*self._folder.glob("column-*.npy"), *self._folder.glob(".column-*.npy.*")):
            if path.name not in names:
                path.unlink(missing_ok=True)


def _write_header(file: BinaryIO, leaf: Tensor, count: int) -> None:
    described = np.lib.format.header_data_from_array_1_0(leaf.contiguous().numpy())
    np.lib.format.write_array_header_1_0(file, {**described, "shape": (count, *leaf.shape[1:])})
