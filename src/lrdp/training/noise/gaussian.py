"""Noise on a sum, by whichever way is fastest where the sum lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from torch import Tensor

from lrdp.errors import Unsupported
from lrdp.training.keystream import Keystream
from lrdp.training.noise import accelerator, chacha, plain
from lrdp.training.noise.grid import Grid

Find = Callable[[], accelerator.NoiseKernel | None]
_COMPILED = (torch.float32, torch.float64)
_TRIED_BLOCKS = 257


class Way(Protocol):
    """A way to add noise to a tensor of one dimension, in place."""

    def add_to(self, flat: Tensor) -> None: ...


class Noise:
    """Gaussian noise of one ``deviation``, for as many tensors as need be; compiled, if ``find`` finds a kernel."""

    def __init__(self, deviation: float, stream: Keystream, find: Find = accelerator.kernel) -> None:
        self._grid, self._stream, self._find = Grid(deviation), stream, find
        self._ways: dict[tuple[torch.device, torch.dtype], Way] = {}

    def add_to(self, total: Tensor) -> None:
        """Add noise to every element of ``total``, in place.

        Guarantees: the sum is taken in float64 and snapped to the grid; rounding to the tensor's type comes after.
        """
        where = (total.device, total.dtype)
        way = self._ways.get(where) or self._ways.setdefault(where, self._way(*where))
        way.add_to(total.detach().view(-1))

    def _way(self, device: torch.device, dtype: torch.dtype) -> Way:
        if device.type != "cpu":
            return plain.there(self._grid, self._stream, device)
        kernel = self._find() if dtype in _COMPILED else None
        if kernel is None:
            return plain.here(self._grid, self._stream)
        return accelerator.Accelerated(self._grid, self._stream, kernel)


def make_ready(device: torch.device, find: Find = accelerator.kernel) -> None:
    """Do now, before anything is charged, what takes time or may fail: load or compile, and try the device's cipher.

    Guarantees: a kernel or a cipher that disagrees with its reference on public words is not used.
    """
    if device.type == "cpu":
        find()
    else:
        check_cipher(device)


def check_cipher(device: torch.device) -> None:
    """Refuse a device whose arithmetic does not give the keystream that a cipher library gives."""
    key, found = bytes(range(32)), torch.empty(8 * _TRIED_BLOCKS, dtype=torch.int64, device=device)
    chacha.fill(found, key)
    expected = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(found.numel() * 8))
    if found.cpu().numpy().tobytes() != expected:
        raise Unsupported(f"noise cannot be made on {device}: its ChaCha20 is wrong. Nothing was charged.")
