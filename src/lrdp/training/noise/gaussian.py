"""Noise on a sum, by whichever way is fastest where the sum lies."""

from __future__ import annotations

from typing import Protocol

import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from torch import Tensor

from lrdp.errors import Unsupported
from lrdp.training.keystream import Keystream
from lrdp.training.noise import accelerator, chacha, plain
from lrdp.training.noise.grid import Grid

_COMPILED = (torch.float32, torch.float64)
_TRIED_BLOCKS = 257


class Way(Protocol):
    """A way to add noise to a tensor of one dimension, in place."""

    def add_to(self, flat: Tensor) -> None: ...


class Noise:
    """Gaussian noise of one ``deviation``, for as many tensors as need be."""

    def __init__(self, deviation: float, stream: Keystream) -> None:
        self._grid, self._stream = Grid(deviation), stream
        self._ways: dict[tuple[torch.device, torch.dtype], Way] = {}

    def add_to(self, total: Tensor) -> None:
        """Add noise to every element of ``total``, in place.

        Guarantees: the sum is taken in float64 and snapped to the grid; rounding to the tensor's type comes after.
        """
        where = (total.device, total.dtype)
        way = self._ways.get(where) or self._ways.setdefault(where, _way(self._grid, self._stream, *where))
        way.add_to(total.detach().view(-1))


def make_ready(device: torch.device) -> None:
    """Do now, before anything is charged, what takes time or may fail: load or compile, and try the device's cipher.

    Guarantees: a kernel or a cipher that makes something else of public words than its reference is not used.
    """
    if device.type == "cpu":
        accelerator.kernel()
    else:
        check_cipher(device)


def check_cipher(device: torch.device) -> None:
    """Refuse a device whose arithmetic does not give the keystream that a cipher library gives."""
    key, found = bytes(range(32)), torch.empty(8 * _TRIED_BLOCKS, dtype=torch.int64, device=device)
    chacha.fill(found, key)
    expected = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(found.numel() * 8))
    if found.cpu().numpy().tobytes() != expected:
        raise Unsupported(f"noise cannot be made on {device}: its ChaCha20 is wrong. Nothing was charged.")


def _way(grid: Grid, stream: Keystream, device: torch.device, dtype: torch.dtype) -> Way:
    if device.type != "cpu":
        return plain.there(grid, stream, device)
    kernel = accelerator.kernel() if dtype in _COMPILED else None
    return plain.here(grid, stream) if kernel is None else accelerator.Accelerated(grid, stream, kernel)
