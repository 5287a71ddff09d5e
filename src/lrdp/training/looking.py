"""Does a pass look at values? Then what it does for one example may hang on the others beside it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_aten: Final = torch.ops.aten
# What turns values into Python's numbers, so into branches, and what has as many rows as there are certain values.
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
_FOREIGN: Final = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


class Looking(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the first place at which values are looked at while it is entered: ``place``, as in ``model.py line 7``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.place: str | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: the wrapper it would bring imports 100 MB of compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run the operation, and note where it was called if it looks."""
        if self.place is None and _looks(func.overloadpacket, args):
            self.place = _caller()
        return func(*args, **(kwargs or {}))


def _looks(kind: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    if kind in _LOOKS:
        return True
    masks = (torch.bool, torch.uint8)
    return kind in _BY_INDEX and any(isinstance(leaf, Tensor) and leaf.dtype in masks for leaf in tree_leaves(args[1]))


def _caller() -> str:
    """The innermost line that is neither torch's nor ours."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(_FOREIGN):
            return f"{Path(frame.filename).name} line {frame.lineno}"
    return "an unknown line"
