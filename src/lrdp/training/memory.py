"""How much memory a step takes, found out before training starts."""

from __future__ import annotations

import ctypes
import re
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lrdp.errors import InvalidInput, OutOfReach
from lrdp.figures import AtLeast, AtMost

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SCRATCH = 1.1  # what kernels allocate inside themselves, unseen from here
_LARGE_BLOCK = 1 << 16
_MANY = 2**31 - 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # of mallopt(3)


def parse_bytes(text: str) -> int:
    """The number of bytes meant by e.g. ``"512MB"`` or ``"1.5GiB"``.

    >>> parse_bytes("512MB"), parse_bytes("1.5 GiB")
    (512000000, 1610612736)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?i?)b?\s*", text.lower())
    if found is None or found[2] not in _UNITS or float(found[1]) == 0:
        raise InvalidInput(f"a memory limit reads like '512MB' or '1.5GiB', got {text!r}.")
    return int(float(found[1]) * _UNITS[found[2]])


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors made while it is entered: ``peak`` is the most that lived at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = self._live = 0
        self._known: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: the wrapper it would bring imports 100 MB of compiler."""
        return False

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation and note the storage of what is new."""
        given = {id(storage) for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if id(storage) not in given:
                self._note(storage)
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self._live += size
        self.peak = max(self.peak, self._live)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._live -= size


def _storages(values: Any) -> list[torch.UntypedStorage]:
    """Of what has any: a sparse tensor is made of dense ones, which were noted on their own."""
    tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))
    return [leaf.untyped_storage() for leaf in tensors if leaf.layout is torch.strided]


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What a step will take: ``peak_bytes`` of tensors at most, on top of ``baseline_bytes`` that the process has."""

    micro_batch: int
    peak_bytes: int
    baseline_bytes: int


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Peak bytes as a straight line in the rows of a pass. Chunked transients make the truth bend below it."""

    fixed: int
    per_row: int

    def at(self, rows: int) -> int:
        """The peak of a pass over this many rows."""
        return int((self.fixed + rows * self.per_row) * _SCRATCH)

    def most_rows(self, room: int) -> int:
        """How many rows fit."""
        return int((room / _SCRATCH - self.fixed) // max(1, self.per_row))


def footprint(peaks: Mapping[int, int], kept: int) -> Footprint:
    """The line through two measured peaks, with ``kept`` bytes more that live through the whole update."""
    (few, low), (many, high) = sorted(peaks.items())
    per_row = max(0, -(-(high - low) // (many - few)))
    return Footprint(fixed=max(0, low - few * per_row) + kept, per_row=per_row)


def either(one: Footprint, other: Footprint) -> Footprint:
    """A line above both."""
    return Footprint(fixed=max(one.fixed, other.fixed), per_row=max(one.per_row, other.per_row))


def choose(found: Footprint, rows: int, limit: int | None) -> MemoryPlan:
    """The largest micro-batch within ``limit`` bytes for the whole process, or all rows where there is no limit."""
    baseline = process_bytes()
    if limit is None:
        return MemoryPlan(micro_batch=rows, peak_bytes=found.at(rows), baseline_bytes=baseline)
    fitting = min(rows, found.most_rows(limit - baseline))
    if fitting < 1:
        need = baseline + found.at(1)
        raise OutOfReach(
            f"memory_limit must be at least {AtMost(need / 1e6):.0f}MB, got {AtLeast(limit / 1e6):.0f}MB: the process "
            f"holds {AtMost(baseline / 1e6):.0f}MB already and one example needs {AtMost(found.at(1) / 1e6):.0f}MB "
            f"more."
        )
    even = -(-rows // -(-rows // fitting))  # passes of equal size, so that no peak is higher than need be
    return MemoryPlan(micro_batch=even, peak_bytes=found.at(even), baseline_bytes=baseline)


def process_bytes() -> int:
    """The memory this process has reserved for itself; 0 where the system does not say.

    What is reserved but not yet touched counts too: a hard limit counts it.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"^VmData:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def return_large_blocks() -> bool:
    """Ask the C library to give blocks above 64 KiB back at once: for a client's process whose memory is short.

    Without it glibc keeps freed blocks, and the process grows beyond what lives. Says whether it was possible.
    """
    return _mallopt({_M_MMAP_MAX: _MANY, _M_MMAP_THRESHOLD: _LARGE_BLOCK, _M_TRIM_THRESHOLD: _LARGE_BLOCK})


def keep_freed_blocks() -> bool:
    """Ask the C library to keep what one step frees for the next: for a client's process that has the memory.

    Without it the system takes large blocks back and hands them out again page by page, each time filled with zeros.
    Says whether it was possible.

    >>> possible = return_large_blocks(), keep_freed_blocks()  # what was said last counts
    >>> set(possible) <= {True, False}
    True
    """
    return _mallopt({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: _MANY})


def _mallopt(settings: Mapping[int, int]) -> bool:
    try:
        library = ctypes.CDLL(None)
        return all(library.mallopt(name, value) for name, value in settings.items())
    except (AttributeError, OSError):
        return False
