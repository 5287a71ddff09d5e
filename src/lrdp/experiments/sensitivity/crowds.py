"""A crowd of clients that come and go: each one's ε by its own books, and what one account for all would claim."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lrdp.experiments.sensitivity.claims import CLAIMS, Compared, Meter
from lrdp.experiments.sensitivity.participation import Pattern, attend
from lrdp.experiments.study import Cell
from lrdp.experiments.utility.mechanisms import OWN, part, step_of


def compared(cell: Cell) -> dict[str, Any]:
    """The true ε of each client, and for each claim what it says and how far off it is."""
    seen = attend(Pattern(**cell["takes_part"]), cell["clients"], cell["rounds"], cell["seed"])
    meter = Meter(
        mechanism=step_of(cell["mechanism"]),
        accountant=part(OWN, cell["accountant"], "accountant"),
        local_steps=cell["local_steps"],
        delta=cell["delta"],
    )
    true = meter.of(seen.charged)
    claimed = {name: claim(meter, seen) for name, claim in CLAIMS.items()}
    return {
        "rate": seen.rate,
        "rounds_least": int(seen.charged.min()),
        "rounds_most": int(seen.charged.max()),
        "true": true.tolist(),
        "gaps": {name: (values - true).tolist() for name, values in claimed.items()},
        "compared": {name: asdict(Compared.of(values, true)) for name, values in claimed.items()},
    }
