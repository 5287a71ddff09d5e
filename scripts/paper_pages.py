"""Fill the tables of docs/results/paper.md, accuracy.md and the pages beside them from the results of the studies.

Run: python scripts/paper_pages.py, after NAME.json of each study has been copied to docs/results/paper. Studies that
are not there leave their tables as they are.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

from paper_tables import ablation, federations, machines, models, utility
from paper_tables.filling import fill

PAGES: Final = {
    "hospitals": federations.HOSPITALS,
    "sensitivity": federations.SENSITIVITY,
    "memory": machines.MEMORY,
    "noise": machines.NOISE,
}
MODELS: Final = {("vgg11-steps", "bert-steps"): models.STEPS, ("cnn", "minilm-lora"): models.TRAINED}
"""Tables of one page, each of several studies."""
FOLDER: Final = Path(__file__).parents[1] / "docs" / "results" / "paper"


def rows(study: str) -> list[dict[str, Any]] | None:
    """What a study's table says; None where it is not there."""
    path = FOLDER / f"{study}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else None


def benchmark(name: str) -> dict[str, Any]:
    """The record of a benchmark, which lies beside the pages."""
    return dict(json.loads((FOLDER.parent / f"{name}.json").read_text(encoding="utf-8")))


def accuracy_tables() -> dict[str, str]:
    """Those of accuracy.md that are no study's."""
    found = benchmark("accuracy")["rows"]
    return {
        **{f"ablation at {epsilon}": ablation.gaps(found, epsilon) for epsilon in (2, 8)},
        "independent": ablation.independent(benchmark("accuracy-independent")),
        "networks": ablation.networks(benchmark("accuracy-networks")["rows"]),
    }


def main() -> None:
    """Every page whose results are there."""
    if (found := rows("utility")) is not None:
        later = rows("automatic") or []  # a run of its own, with a baseline of its own
        found += [row for row in later if row["method"] == "automatic"]
        findings = utility.Findings(found, tomllib.loads((FOLDER / "published.toml").read_text(encoding="utf-8")))
        fill(FOLDER.parent / "paper.md", {name: made(findings) for name, made in utility.TABLES.items()})
        fill(FOLDER.parent / "accuracy.md", {"automatic": utility.automatic(later), **accuracy_tables()})
    for study, tables in PAGES.items():
        if (found := rows(study)) is not None:
            fill(FOLDER / f"{study}.md", {name: made(found) for name, made in tables.items()})
    for studies, tables in MODELS.items():
        if together := [row for study in studies for row in rows(study) or []]:
            fill(FOLDER / "models.md", {name: made(together) for name, made in tables.items()})


if __name__ == "__main__":
    main()
