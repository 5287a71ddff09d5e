"""``lrdp check MODULE:Model``: can this model be trained privately, and what does each layer cost?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lrdp.commands.output import AsJson, print_json, screen
from lrdp.errors import Unsupported
from lrdp.figures import AtMost
from lrdp.screen import visible

if TYPE_CHECKING:
    from lrdp.training import Report

ModelName = Annotated[str, typer.Argument(help="MODULE:NAME of a model, or of a class or function that makes one.")]


def check(model: ModelName, as_json: AsJson = False) -> None:
    """Say for each layer which rule applies, what it costs, what is refused and how to mend it."""
    from lrdp.training import check as inspect
    from lrdp.training.loading import load_model

    report = inspect(load_model(model))
    if as_json:
        layers = [asdict(layer) for layer in report.layers]
        print_json({"trainable": report.trainable, "headroom": report.headroom, "layers": layers})
    else:
        screen().print(_table(report))
    if not report.trainable:
        raise typer.Exit(Unsupported.exit_code)


def _table(report: Report) -> Table:
    table = Table("layer", "kind", "parameters", "rule", "what it costs, or how to mend it", title_justify="left")
    table.title = "Trains privately as it is" if report.trainable else "Does not train privately yet"
    table.caption_justify = "left"
    clipped = f"Gradients are clipped to {AtMost(1 - report.headroom):.2%} of the clip norm"
    table.caption = f"{clipped}; the rest bounds, by proof, what rounding can add."
    for layer in report.layers:
        style = "red" if layer.refused else None
        words = layer.refused or layer.cost
        cells = (layer.path, layer.kind, f"{layer.parameters:,}", layer.rule, words)
        table.add_row(*map(visible, cells), style=style)
    return table
