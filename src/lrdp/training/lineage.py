"""Which rows meet in a pass? Every operation's result is watched while one row after the other is replaced.

Watching the losses alone would miss what is swallowed on the way, such as a threshold on the batch's median that no
made-up record passes. The median itself, though, changes with every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lrdp.training.looking import Watching, is_view

_aten: Final = torch.ops.aten
_UNWRITTEN: Final = {
    _aten.empty,
    _aten.empty_like,
    _aten.empty_permuted,
    _aten.empty_strided,
    _aten.new_empty,
    _aten.new_empty_strided,
}
_COMPARISONS: Final = {
    *(_aten.eq, _aten.ne, _aten.lt, _aten.le, _aten.gt, _aten.ge),
    *(_aten.isnan, _aten.isinf, _aten.isfinite, _aten.isposinf, _aten.isneginf),
}
Pass = Callable[[], Sequence[Tensor]]


def where_rows_meet(plain: Pass, replaced: Sequence[Iterable[Pass]]) -> str:
    """The line that computes something from more than one row, such as ``model.py line 7``; empty if there is none.

    ``replaced`` has for each row the passes that differ from ``plain`` in that row alone. What does not lead to
    the results of a pass may meet freely.
    """
    recording: Any = _Recording()
    with recording:
        results = plain()
    calls = recording.leading_to(results)
    for passes in replaced:
        for again in passes:
            if place := _place(calls, again):
                return place
        for call in calls:
            call.close_row()
    return ""


def _place(calls: list[_Call], again: Pass) -> str:
    """Where a pass changes what another row has changed already; it may fail from there on, as where rows are gone."""
    comparing: Any = _Comparing(calls)
    try:
        with comparing:
            again()
    except Exception:
        if not comparing.place:
            raise
    return str(comparing.place)


class _Call:
    """One operation: what it read and wrote, and which of its values changed with a row that was replaced."""

    def __init__(self, kind: Any, given: Any, made: Any) -> None:
        self.kind, self.given, self.made = kind, _tensors(given), _tensors(made)
        self._shapes = [leaf.shape for leaf in self.made]  # a tensor may be transposed in place later
        # What nobody has written yet is whatever was in memory.
        written = kind.overloadpacket not in _UNWRITTEN
        self._values = [leaf.detach().clone() for leaf in self.made] if written else []
        self._compared = [leaf.detach().clone() for leaf in self.given] if _compares(kind) else []
        self._earlier: list[Tensor] = []
        self._now: list[Tensor] = []

    def either_way(self, given: Any, made: Any) -> Any:
        """What a comparison makes, the other way round where what is compared has changed.

        With other records or weights it may turn out that way, and what is not a number would otherwise end here.
        """
        if not self._compared:
            return made
        changed = [_differs(leaf, before) for leaf, before in zip(_tensors(given), self._compared, strict=True)]
        return torch.where(reduce(torch.logical_or, changed), ~self._values[0], made)

    def forget(self) -> None:
        self._values = []
        self._compared = []

    def does(self, kind: Any, made: Any) -> bool:
        """Whether that is the same operation, on the same shapes."""
        return kind is self.kind and [leaf.shape for leaf in _tensors(made)] == self._shapes

    def meets(self, made: Any) -> bool:
        """Whether a value has now changed with two rows."""
        changed = [_differs(leaf, values) for leaf, values in zip(_tensors(made), self._values, strict=False)]
        self._now = [a | b for a, b in zip(changed, self._now, strict=True)] if self._now else changed
        return any(bool((now & before).any()) for now, before in zip(self._now, self._earlier, strict=False))

    def close_row(self) -> None:
        """What changed up to now changed with one row; the next one's passes follow."""
        both = zip(self._now, self._earlier, strict=True)
        self._earlier = [now | before for now, before in both] if self._earlier else self._now
        self._now = []


class _Recording(Watching):  # type: ignore[no-untyped-call]
    """Keeps every operation but views: what they show lies in the same memory, and is compared where it was made."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[_Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if not is_view(func):
            self._calls.append(_Call(func, (args, kwargs), made))
        return made

    def leading_to(self, results: Sequence[Tensor]) -> list[_Call]:
        """All operations, with values only of those that the results come from."""
        wanted = set(map(_memory_of, results))
        for call in reversed(self._calls):
            if wanted.isdisjoint(map(_memory_of, call.made)):
                call.forget()
            else:
                wanted.update(map(_memory_of, call.given))
        return self._calls


class _Comparing(Watching):  # type: ignore[no-untyped-call]
    """Compares with the operations of an earlier pass, and notes the first ``place`` where rows meet."""

    def __init__(self, calls: list[_Call]) -> None:
        super().__init__()
        self._left = iter(calls)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if self.place or is_view(func):
            return made
        call = next(self._left, None)
        if call is not None and call.does(func, made):
            made = call.either_way((args, kwargs), made)
            if not call.meets(made):
                return made
        self.note()
        return made


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _memory_of(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _compares(kind: Any) -> bool:
    return kind.overloadpacket in _COMPARISONS


def _differs(values: Tensor, before: Tensor) -> Tensor:
    """Where two results differ; what is not a number equals itself."""
    return (values != before) & ~(values.isnan() & before.isnan())
