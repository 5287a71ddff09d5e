"""A model's own random numbers, such as dropout's. They need not be secret, but must depend on nothing private."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

_PUBLIC_SEED = 11


def begin_at(seed: int, device: torch.device) -> None:
    """Start torch's generators from ``seed``: the processor's, and the device's if it has one of its own.

    ``torch.manual_seed`` would visit every kind of device, and queue a call for each that is not yet in use.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def same_chance(device: torch.device, seed: int = _PUBLIC_SEED) -> Iterator[None]:
    """The same random numbers in every pass that is run like this; the caller's own go on as if nothing had happened.

    The same holds for those of numpy and of Python, from which models draw masks over time.
    """
    numbers, choices = np.random.get_state(), random.getstate()  # noqa: NPY002 - the state that everybody shares
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            begin_at(seed, device)
            np.random.seed(seed)  # noqa: NPY002
            random.seed(seed)
            yield
    finally:
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(choices)


def drawn_so_far(device: torch.device) -> bytes:
    """Where torch's generators stand: some operations draw more for one value than for another."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    return b"".join(bytes(state.tolist()) for state in states)


def elsewhere() -> str:
    """Where the generators of numpy and of Python stand: whoever draws from them moves them."""
    return f"{random.getstate()} {np.random.get_state()}"  # noqa: NPY002


@contextmanager
def without_chance(model: nn.Module) -> Iterator[None]:
    """Dropout off, so that two passes can be compared; every module's own mode comes back afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
