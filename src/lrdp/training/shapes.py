"""The shapes inside a pass, pinned: learnt from public batches, and demanded of every later one."""

from __future__ import annotations

from collections.abc import Sequence

from lrdp.errors import Unsupported

Shape = tuple[int, ...]


class Shapes:
    """What the layers give out, in order, and how it grows with the rows.

    Two numbers of rows tell how; each dimension is the same for all, or grows by the same amount with each row.
    """

    def __init__(self, few: tuple[int, Sequence[Shape]], more: tuple[int, Sequence[Shape]]) -> None:
        self._known, known = few
        rows, shapes = more
        if [len(shape) for shape in known] != [len(shape) for shape in shapes]:
            raise Unsupported(f"what the layers give out has other dimensions for {rows} examples than for {few[0]}.")
        self._base = [tuple(shape) for shape in known]
        pairs = zip(known, shapes, strict=True)
        self._between = rows - few[0]
        self._growths = [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in pairs]

    def demand(self, rows: int, shapes: Sequence[Shape]) -> None:
        """Raise if a pass over this many rows had others: then it is not known which row is whose."""
        if [tuple(shape) for shape in shapes] != self._expected(rows):
            raise Unsupported("a pass has other shapes inside than those that were checked.")

    def _expected(self, rows: int) -> list[Shape]:
        """In whole numbers: some stand for "to the end", and are too large for floats."""
        more = rows - self._known
        return [
            tuple(size + growth * more // self._between for size, growth in zip(shape, growths, strict=True))
            for shape, growths in zip(self._base, self._growths, strict=True)
        ]
