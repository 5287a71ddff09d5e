"""Truncated Poisson: what we charge beside what dp-accounting charges, at random settings.

The law that settings are drawn by stands in ``drawn``: nobody picks them, and the only ones that are turned away are
those whose ε is below 10⁻⁴ or above 12, for the time that the peer takes there. Ours holds for every data set of at
most n records, dp-accounting's for n alone; where ours is above, the peer is asked for the smaller sizes as well.
What ``--out`` has already is not asked again, so a run that was stopped goes on. ``--peer-itself`` leaves the peer as
it is, at some five times the time; rows say how they were made.
Run: make bench-truncated ARGS="--out docs/results/truncated.json"
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import dp_accounting
import dp_accounting_at_once
import numpy as np
from dp_accounting.pld import PLDAccountant

from lrdp.accounting import Adjacency, PldAccountant, SteadyAccountant, TruncatedPoissonGaussian
from lrdp.experiments.study.surroundings import surroundings

DELTA: Final = 1e-5
SEED: Final = 20
LEAST_EPSILON, MOST_EPSILON = 1e-4, 12.0
TAIL: Final = 3e-5
"""What our cut-off tail costs at most, 10⁻⁴ of δ: where both are plain Poisson they differ by less than this."""
USUAL: Final = Adjacency.ADD_REMOVE


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What both are asked: ``steps`` steps on ``records`` records, cut at ``cap``."""

    records: int
    batch: int
    cap: int
    noise: float
    steps: int

    @property
    def mechanism(self) -> TruncatedPoissonGaussian:
        return TruncatedPoissonGaussian(
            dataset_size=self.records, batch_size=self.batch, cap=self.cap, noise_multiplier=self.noise
        )

    @property
    def ours(self) -> float:
        return PldAccountant(adjacency=USUAL).epsilon({self.mechanism: self.steps}, DELTA).epsilon

    def theirs(self, records: int) -> float:
        """dp-accounting's ε for ``records`` records, each drawn as likely as among all."""
        event = dp_accounting.TruncatedSubsampledGaussianDpEvent(
            records, self.batch / self.records, self.cap, self.noise
        )
        return float(PLDAccountant().compose(event, self.steps).get_epsilon(DELTA))


def drawn(chance: np.random.Generator) -> Setting:
    """One setting: half of the batches fill their cap, a quarter come within a deviation of it, a quarter are free."""
    records = int(10 ** chance.uniform(1.5, 4.7))
    cap = int(math.exp(chance.uniform(0, math.log(min(0.6 * records, 600)))))
    kind, share = chance.integers(4), chance.uniform()
    below = 0.0 if kind < 2 else share * math.sqrt(cap) if kind == 2 else 0.6 * share * cap
    noise, steps = math.exp(chance.uniform(math.log(0.4), math.log(6))), int(10 ** chance.uniform(0, 4))
    return Setting(records=records, batch=max(1, round(cap - below)), cap=cap, noise=round(noise, 4), steps=steps)


def settings(count: int, refused: list[Setting]) -> Iterator[Setting]:
    """As many as are asked for; those out of the range of ε go to ``refused``."""
    chance, found = np.random.default_rng(SEED), 0
    while found < count:
        setting = drawn(chance)
        rough = SteadyAccountant(adjacency=USUAL).epsilon({setting.mechanism: setting.steps}, DELTA).epsilon
        if LEAST_EPSILON < rough < MOST_EPSILON:
            found += 1
            yield setting
        else:
            refused.append(setting)


def smaller_sizes(setting: Setting) -> list[int]:
    """Some eight sizes between the smallest that is ever cut and the stated one."""
    return sorted({int(size) for size in np.geomspace(setting.cap + 1, setting.records, 8)})


def compared(setting: Setting, peer: str) -> dict[str, Any]:
    """A row of the record."""
    ours, theirs = setting.ours, setting.theirs(setting.records)
    row: dict[str, Any] = {**asdict(setting), "ours": ours, "theirs": theirs, "ratio": ours / theirs, "peer": peer}
    if ours > theirs * (1 + TAIL):
        row["theirs_at_the_worst_size"] = max(setting.theirs(size) for size in smaller_sizes(setting))
    return row


def summary(rows: list[dict[str, Any]], refused: int) -> dict[str, Any]:
    ratios = np.array([row["ratio"] for row in rows])
    return {
        "settings": len(rows),
        "turned_away": refused,
        "above": int((ratios > 1 + TAIL).sum()),
        "above_at_every_size": sum(
            row["ours"] > (1 + TAIL) * row.get("theirs_at_the_worst_size", math.inf) for row in rows
        ),
        "largest_ratio": float(ratios.max()),
        "median_ratio": float(np.median(ratios)),
        "least_ratio": float(ratios.min()),
        "filled": sum(row["batch"] == row["cap"] for row in rows),
        "noise_below_one": sum(row["noise"] < 1 for row in rows),
        "at_most_ten_steps": sum(row["steps"] <= 10 for row in rows),
        "at_least_thousand_steps": sum(row["steps"] >= 1000 for row in rows),
    }


def stored(path: Path) -> dict[Setting, dict[str, Any]]:
    """The rows that are there already, by their settings."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return {Setting(**{each.name: row[each.name] for each in fields(Setting)}): row for row in rows}


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--settings", type=int, default=207)
    asked.add_argument("--out", type=Path, default=Path("build/truncated.json"))
    asked.add_argument("--peer-itself", action="store_true", help="without dp_accounting_at_once.py")
    given = asked.parse_args()
    if not given.peer_itself:
        dp_accounting_at_once.apply()
    peer = "itself" if given.peer_itself else "all losses at once"
    given.out.parent.mkdir(parents=True, exist_ok=True)
    known, rows, refused = stored(given.out), list[dict[str, Any]](), list[Setting]()
    about = {"made": surroundings(), "seed": SEED, "delta": DELTA}
    for setting in settings(given.settings, refused):
        rows.append(known.get(setting) or compared(setting, peer))
        if setting not in known:
            print(json.dumps(rows[-1]), flush=True)
            found = {**about, "summary": summary(rows, len(refused)), "rows": rows}
            given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary(rows, len(refused))))


if __name__ == "__main__":
    main()
