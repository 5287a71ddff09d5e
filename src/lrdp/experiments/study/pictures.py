"""What all pictures have in common: colours, and a picture for the page and one for everywhere else."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lrdp.experiments.study.store import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, distinguishable without full colour vision; markers tell the lines apart as well.
COLOURS: Final = ("#000000", "#E69F00", "#56B4E9", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#999999", "#661100")
MARKERS: Final = ("D", "s", "v", "o", "^", "*", "P", "X", "h")
_DOTS_PER_INCH: Final = 150


def saved(figure: Figure, stem: Path) -> Sequence[Path]:
    """STEM.svg and STEM.png, the same bytes for the same picture."""
    from matplotlib import rc_context

    paths = []
    with rc_context({"svg.hashsalt": stem.name}):
        for kind in ("svg", "png"):
            data, path = io.BytesIO(), stem.with_name(f"{stem.name}.{kind}")
            dated = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(data, format=kind, dpi=_DOTS_PER_INCH, metadata=dated)
            write(path, data.getvalue())
            paths.append(path)
    return paths
