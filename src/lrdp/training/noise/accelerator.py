"""The compiled way to make noise: found if it is there, tried before it is trusted, and never required."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrdp.errors import InvalidInput, Unsupported
from lrdp.training.keystream import Keystream
from lrdp.training.noise import plain
from lrdp.training.noise.grid import Grid

_LOG = logging.getLogger("lrdp.training")
_MOST_THREADS = 4  # the cipher holds the interpreter's lock, a third of the time
_TRIED = 1027  # values: whole vectors and an odd end
_TOLERATED = 4.0  # steps: one where a value lies between two multiples, and what the cast to float32 makes of it
_EXTREMES = np.array([0, 2**52 - 1, 2**64 - 1], dtype=np.uint64)  # words of the nearest and the farthest values

NoiseKernel = Callable[[NDArray[np.uint64], NDArray[Any], float, float], None]


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """How a tensor is split: chunks that stay in the cache, and sections, one thread for each.

    Smaller chunks are no faster on one thread, and on two they hand the interpreter's lock over more often.
    """

    chunk: int = 1 << 16
    section: int = 1 << 20

    def __post_init__(self) -> None:
        """Refuse chunks whose last pair would have one word: the kernel checks no bounds."""
        if self.chunk < 1 or self.chunk % 2:
            raise InvalidInput(f"chunk must be an even number of values, got {self.chunk}: they are made in pairs.")


_USUAL = Pieces()


class Accelerated:
    """Noise for tensors on the CPU, by a compiled kernel, on as many threads as torch may use.

    Each section of a large tensor has a key of its own, drawn in order: what is made does not depend on the threads.
    None of them outlives the call, so there is nothing to fork, and an error in one of them is an error of the call.
    """

    def __init__(self, grid: Grid, stream: Keystream, kernel: NoiseKernel, pieces: Pieces = _USUAL) -> None:
        self._grid, self._stream, self._kernel, self._pieces = grid, stream, kernel, pieces

    def add_to(self, flat: Tensor) -> None:
        """Add noise in float64, snap, and only then round to the tensor's type."""
        values, section = flat.numpy(), self._pieces.section
        if len(values) <= section:
            self._add(values, self._stream)
            return
        sections = [values[start : start + section] for start in range(0, len(values), section)]
        streams = [Keystream(self._stream.key()) for _ in sections]
        with ThreadPoolExecutor(min(torch.get_num_threads(), _MOST_THREADS)) as threads:
            for _ in threads.map(self._add, sections, streams):
                pass

    def _add(self, values: NDArray[Any], stream: Keystream) -> None:
        chunk = self._pieces.chunk
        buffer = np.empty(min(chunk, len(values) + 1), dtype=np.uint64)
        for start in range(0, len(values), chunk):
            part = values[start : start + chunk]
            words = buffer[: len(part) + len(part) % 2]
            stream.fill(words)
            self._kernel(words, part, self._grid.stretch, self._grid.step)


@functools.cache
def kernel() -> NoiseKernel | None:
    """The compiled kernel, if numba is there and makes the plain way's noise; else None, and why is said once."""
    try:
        return _loaded()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an optional package, the plain way remains
        if not (isinstance(error, ModuleNotFoundError) and error.name == "numba"):  # not being there is no fault
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            _LOG.warning("Noise is made the plain way, at a third of the speed: numba fails with: %s", reason)
        return None


def _loaded() -> NoiseKernel:
    """Compiled code is kept on disk, next to this package or in the user's cache.

    Where neither can be written, or what is kept is broken, it is compiled for this process alone.
    """
    from lrdp.training.noise.compiled import compiled

    try:
        return check(compiled(cache=True))
    except Exception:  # noqa: BLE001 - the same without the disk
        return check(compiled(cache=False))


def check(kernel: NoiseKernel) -> NoiseKernel:
    """The kernel, or a refusal if it does not do what the plain way does with the same words: it was compiled wrongly.

    The words are public and give no noise to anybody.
    """
    words, grid = Keystream(bytes(32)).words(_TRIED + 1), Grid(0.37)
    for start in (0, words.size // 2 + len(_EXTREMES)):  # of radii, and of angles
        words[start : start + len(_EXTREMES)] = _EXTREMES
    given = torch.from_numpy(words.view(np.int64))
    for dtype in (torch.float32, torch.float64):
        here, there = (torch.linspace(-2.0, 2.0, _TRIED, dtype=dtype) for _ in range(2))
        kernel(words.copy(), here.numpy(), grid.stretch, grid.step)
        plain.Plain(grid, lambda room: room.copy_(given), len(words), there.device).add_to(there)
        apart = float((here.double() - there.double()).abs().max()) / grid.step
        if not apart <= _TOLERATED:
            raise Unsupported(f"its noise lies {apart} steps from the plain way's, more than {_TOLERATED}.")
    return kernel
