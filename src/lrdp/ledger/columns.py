"""Columns in one file of numpy's format, read without trust: nothing is unpickled, unpacked or allocated on its word.

The arrays lie in the file as they lie in memory, so reading takes as much memory as the file has bytes. A compressed
array, one whose header promises more than there is, or a table of contents of any length: each is refused before
anything is made of it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, Final
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from lrdp import files
from lrdp.errors import InvalidInput

_END: Final = struct.Struct("<4s4H2LH")  # signature, disks, entries twice, size and place of the contents, comment
_FAR_END_SIZE: Final = 20
_MOST_COLUMNS: Final = 64
_MOST_CONTENTS: Final = 1 << 16
# zipfile trusts lengths and offsets, and numpy reads a header as Python's literals.
_DAMAGED: Final = (
    *(ValueError, KeyError, EOFError, BadZipFile, NotImplementedError, OverflowError, RuntimeError, struct.error),
    *(SyntaxError, TokenError, RecursionError, MemoryError, TypeError),
)

NamedColumns = dict[str, NDArray[Any]]


def write_columns(path: Path, **columns: NDArray[Any]) -> None:
    """A file of these columns, in place of the one that was there."""
    try:
        with files.replacing(path, files.PUBLIC) as file:
            np.savez(file, allow_pickle=False, **columns)
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None


def read_columns(path: Path, kinds: Mapping[str, str]) -> NamedColumns:
    """The columns of these names, each of its kind ("U" text, "i" whole numbers, "f" numbers), and no others."""
    try:
        with files.opened(path) as file:
            _require_short_contents(file)
            with ZipFile(file) as archive:
                members = _listed(archive, os.fstat(file.fileno()).st_size)
                if members.keys() != kinds.keys():
                    raise ValueError(f"its columns are not {', '.join(kinds)}, so import the reports into a new file")
                return {name: _column(archive, members[name], kind) for name, kind in kinds.items()}
    except OSError as problem:
        raise InvalidInput(f"{path} holds no fleet: {problem.strerror or problem}.") from None
    except _DAMAGED as problem:
        raise InvalidInput(f"{path} holds no fleet: {str(problem)[:300]}.") from None


def _require_short_contents(file: BinaryIO) -> None:
    """zipfile reads all of the contents at once, so their length is looked at first."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _END.size - _FAR_END_SIZE, 0))
    tail = file.read()
    before, last = tail[: -_END.size], tail[-_END.size :].rjust(_END.size, b"\0")
    mark, _, _, _, entries, contents, _, comment = _END.unpack(last)
    if (mark, comment) != (b"PK\5\6", 0) or entries > _MOST_COLUMNS or contents > _MOST_CONTENTS:
        raise ValueError("it does not end as a file of columns does")
    if before.startswith(b"PK\6\7"):
        raise ValueError("it has more than 2 GiB: at most that is read")


def _listed(archive: ZipFile, size: int) -> dict[str, ZipInfo]:
    members = archive.infolist()
    if any(member.compress_type != ZIP_STORED for member in members):
        raise ValueError("a column is compressed, which this software never does")
    if sum(member.file_size for member in members) > size:
        raise ValueError("the columns have more bytes than the file")
    return {member.filename.removesuffix(".npy"): member for member in members}


def _column(archive: ZipFile, member: ZipInfo, kind: str) -> NDArray[Any]:
    with archive.open(member) as stream:
        npy.read_magic(stream)
        shape, _, dtype = npy.read_array_header_1_0(stream)
        whole = stream.tell() + prod(shape) * dtype.itemsize == member.file_size
    if dtype.kind != kind or len(shape) != 1 or not whole:
        raise ValueError(f"the column {member.filename} is not of its kind, or not whole")
    with archive.open(member) as stream:
        column: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
    return column
