"""Does a pass look at values? Then what it does for one example may depend on the others beside it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_aten: Final = torch.ops.aten
# What turns values into Python's numbers, and so into branches, and what has a row for each value of some kind.
_LOOKS: Final = {
    _aten._local_scalar_dense,
    _aten.nonzero,
    _aten.nonzero_numpy,
    _aten.masked_select,
    _aten.unique_dim,
    _aten._unique,
    _aten._unique2,
    _aten.unique_consecutive,
    _aten.bincount,
    _aten.repeat_interleave,
    _aten.equal,
}
_BY_INDEX: Final = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}
# Ways out of torch that bypass its operations.
_LEAVES: Final = {
    Tensor.__array__,
    Tensor.__dlpack__,
    Tensor.data_ptr,
    Tensor.numpy,
    Tensor.tolist,
    Tensor.untyped_storage,
}
_OURS: Final = str(Path(__file__).parent)
_FOREIGN: Final = (str(Path(torch.__file__).parent), _OURS, contextlib.__file__)
# Where a pass of ours begins: in the engine, on the tape, and in a whole pass.
_BEGINNINGS: Final = {"losses", "_forward", "backward", "_back_from", "whole_pass"}


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation while it is entered, and notes one ``place``, as in ``Model, model.py line 7``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.place = ""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: the wrapper it would bring imports 100 MB of compiler."""
        return False

    def note(self) -> None:
        """Note the first place only."""
        self.place = self.place or calling_line()


@contextlib.contextmanager
def looking() -> Iterator[Watching]:
    """Notes where values are looked at meanwhile."""
    watching: Any = _Looking()
    with watching, _Leaving(watching):
        yield watching


class _Looking(Watching):  # type: ignore[no-untyped-call]
    """In operations of torch."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if _looks(func.overloadpacket, args):
            self.note()
        return func(*args, **(kwargs or {}))


class _Leaving(TorchFunctionMode):
    """In what is no operation of torch."""

    def __init__(self, watching: Watching) -> None:
        super().__init__()
        self._watching = watching

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func in _LEAVES:
            self._watching.note()
        return func(*args, **(kwargs or {}))


def _looks(kind: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    if kind in _LOOKS:
        return True
    masks = (torch.bool, torch.uint8)
    return kind in _BY_INDEX and any(isinstance(leaf, Tensor) and leaf.dtype in masks for leaf in tree_leaves(args[1]))


def is_view(kind: Any) -> bool:
    """Whether an operation shows memory that already exists."""
    return any(made.alias_info is not None and not made.alias_info.is_write for made in kind._schema.returns)


def calling_line() -> str:
    """The module that runs, and the innermost line of its code that is neither torch's nor ours."""
    frames = list(_frames(sys._getframe(1)))
    selves = (frame.f_locals.get("self") for frame in frames)
    owners = (type(own).__name__ for own in selves if isinstance(own, nn.Module))
    codes = ((Path(frame.f_code.co_filename), frame.f_lineno) for frame in frames)
    lines = (f"{file.name} line {line}" for file, line in codes if not str(file).startswith(_FOREIGN))
    return ", ".join(filter(None, (next(owners, ""), next(lines, "")))) or "the backward pass"


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Up to where a pass began: what lies beyond it called us, and is not to blame."""
    while frame is not None and not _begins(frame.f_code):
        yield frame
        frame = frame.f_back


def _begins(code: CodeType) -> bool:
    return code.co_name in _BEGINNINGS and code.co_filename.startswith(_OURS)
