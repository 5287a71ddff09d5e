"""When records are read: each time they are needed, or one batch ahead, while the batch before is computed.

Which records, and in what order, is settled by whoever draws, and drawn in the thread that trains, in both cases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Piece = TypeVar("Piece")
Read = TypeVar("Read")


@contextmanager
def in_turn(read: Callable[[Piece], Read], parts: Iterable[Piece]) -> Iterator[Iterator[Read]]:
    """What is read from each part, when it is asked for."""
    yield map(read, parts)


@contextmanager
def one_ahead(read: Callable[[Piece], Read], parts: Iterable[Piece]) -> Iterator[Iterator[Read]]:
    """The same, but a thread reads the part after the one that was handed out last; it has ended when the block has.

    Guarantees: what is read, its order and its errors are those of ``in_turn``. Random numbers that a data set takes
    from torch are the thread's own: a model's must not depend on how far the reading has come.
    """
    thread, chance = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lrdp-reading"), OwnChance()

    def apart(part: Piece) -> Read:
        with chance:
            return read(part)

    def handed_out() -> Iterator[Read]:
        waiting: deque[Future[Read]] = deque()
        for part in parts:
            waiting.append(thread.submit(apart, part))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        for last in waiting:
            yield last.result()

    try:
        yield handed_out()
    finally:
        thread.shutdown(cancel_futures=True)


class OwnChance(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Torch's random operations draw from generators of this mode, not from those that all threads share."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generators: dict[torch.device, torch.Generator] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: the wrapper it would bring imports 100 MB of compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run the operation, with a generator of our own where it draws and has been given none."""
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags or given.get("generator") is not None:
            return func(*args, **given)
        device = next((value.device for value in args if isinstance(value, Tensor)), given.get("device"))
        return func.overloadpacket(*args, **{**given, "generator": self._of(torch.device(device or "cpu"))})

    def _of(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device)
            self._generators[device].seed()
        return self._generators[device]
