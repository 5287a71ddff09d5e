"""The processes that cells run in: each on one core, so that they do not get in each other's way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def one_thread() -> None:
    """What a new process does first."""
    import torch

    torch.set_num_threads(1)


def run_alone(work: Callable[..., Any], *given: Any) -> Future[Any]:
    """Here and now, as a future that is done."""
    future: Future[Any] = Future()
    try:
        future.set_result(work(*given))
    except Exception as problem:  # noqa: BLE001 — handed on, as from another process
        future.set_exception(problem)
    return future
