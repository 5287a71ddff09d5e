"""What ``lrdp plan --passes`` recommends for the tasks of the evaluation, beside plain Poisson and the paper's L-RDP.

Every task keeps the passes of its study: rounds, steps and batches of experiments/noise.toml (the paper's own, and
those of the linear heads) and of experiments/hospitals.toml (the largest hospital and the smallest, by what
docs/results/paper/hospitals.json counted). Noise over training, σ/(B√T), is compared at equal passes.
Run: make bench-plans ARGS="--out docs/results/plans.json"
"""

from __future__ import annotations

import argparse
import json
import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lrdp.accounting import (
    Adjacency,
    BatchFrontier,
    Budget,
    Candidate,
    FixedSizeGaussian,
    PoissonGaussian,
    RenyiAccountant,
    TrainingAim,
    baselines,
    calibrated,
    finals,
    kept,
    least_noise,
    trials,
)
from lrdp.experiments.study.surroundings import surroundings

ROOT: Final = Path(__file__).parents[1]
DELTA, ROWS = 1e-5, 32
MOST_OF_POISSON, MOST_OF_L_RDP = 1.02, 0.55
EXACT: Final = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)


@dataclass(frozen=True, kw_only=True)
class Client:
    """One client of a task, with the batch and the steps that its study took."""

    task: str
    records: int
    batch: int
    steps: int

    def aim(self, epsilon: float) -> TrainingAim:
        """The same passes, and no fewer steps than the study took where it took less than sixty."""
        return TrainingAim(
            dataset_size=self.records,
            passes=self.steps * self.batch / self.records,
            rows=ROWS,
            budget=Budget(epsilon=epsilon, delta=DELTA),
            least_steps=min(60, self.steps),
        )


def from_the_paper() -> Iterator[Client]:
    """Six tasks as the paper has them, and the same six as the linear heads have them."""
    tasks = tomllib.loads((ROOT / "experiments/noise.toml").read_text(encoding="utf-8"))["tasks"]
    for name, task in tasks.items():
        yield Client(task=name, records=task["records"], batch=task["batch_size"], steps=task["steps"])


def hospitals() -> Iterator[Client]:
    """The largest and the smallest hospital of each set, with a record to spare."""
    stored = json.loads((ROOT / "docs/results/paper/hospitals.json").read_text(encoding="utf-8"))
    sites = {cell["cell"]["task"]: cell["result"] for cell in stored["cells"] if cell["cell"]["stage"] == "sites"}
    tasks = tomllib.loads((ROOT / "experiments/hospitals.toml").read_text(encoding="utf-8"))["tasks"]
    for name in ("heart", "tcga", "eicu-regions", "eicu-hospitals"):
        patients = sites[name]["patients"].values()
        for title, bound in {"largest": max(patients) + 1, "smallest": min(patients) + 1}.items():
            batch = math.ceil(bound * tasks[name]["batch_share"])
            if title == "largest" or min(patients) < max(patients):
                yield Client(task=f"{name}, {title}", records=bound, batch=batch, steps=tasks[name]["rounds"])


def searched(aim: TrainingAim) -> BatchFrontier:
    """What the command does."""
    first = kept(calibrated(aim, trial) for trial in trials(aim))
    second = kept(calibrated(aim, trial) for trial in finals(aim, first))
    best = BatchFrontier(aim=aim, searched=first, finalists=second).recommended
    measures = kept(calibrated(aim, trial) for trial in baselines(aim, first, best))
    return BatchFrontier(aim=aim, searched=first, finalists=second, measures=measures)


def _of(kind: type, measures: tuple[Candidate, ...]) -> float:
    return next(each.noise_over_training for each in measures if isinstance(each.mechanism, kind))


def compared(client: Client, epsilon: float) -> dict[str, Any]:
    """A row: what is recommended, and its noise over that of the others."""
    aim = client.aim(epsilon)
    found = searched(aim)
    best = found.recommended
    own = FixedSizeGaussian(dataset_size=client.records, batch_size=client.batch, noise_multiplier=1.0)
    paper = least_noise(own, client.steps, aim.budget, EXACT).mechanism
    noise = best.noise_over_training
    return {
        "task": client.task,
        "records": client.records,
        "epsilon": epsilon,
        "passes": round(aim.passes, 3),
        "recommended": best.label,
        "batch": best.mechanism.normaliser,
        "steps": best.steps,
        "rows_at_a_time": aim.rows,
        "noise_multiplier": best.mechanism.noise_multiplier,
        "noise_over_training": noise,
        "of_poisson": noise / _of(PoissonGaussian, found.measures),
        "of_l_rdp_same_batch": noise / _of(FixedSizeGaussian, found.measures),
        "of_l_rdp_own_batch": noise / (paper.noise_on_mean / math.sqrt(client.steps)),
        "own_batch": client.batch,
        "own_steps": client.steps,
    }


def kept_bars(row: dict[str, Any]) -> bool:
    """Poisson's noise but for a fiftieth, and little more than half of the paper's, in memory of 32 rows."""
    paper = max(row["of_l_rdp_same_batch"], row["of_l_rdp_own_batch"])
    return bool(row["of_poisson"] <= MOST_OF_POISSON and paper <= MOST_OF_L_RDP and row["rows_at_a_time"] <= ROWS)


def shown(row: dict[str, Any]) -> str:
    ratios = f"{row['of_poisson']:.4f} | {row['of_l_rdp_same_batch']:.3f} | {row['of_l_rdp_own_batch']:.3f}"
    chosen = f"{row['recommended']}, B = {row['batch']:,}, T = {row['steps']:,}"
    noise = f"{1e5 * row['noise_over_training']:.4g}"
    asked = f"{row['task']} | {row['records']:,} | {row['epsilon']:g} | {row['passes']:g}"
    return f"| {asked} | {chosen} | {noise} | {ratios} |"


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--out", type=Path, default=Path("build/plans.json"))
    asked.add_argument("--tasks", default="", help="only those with this in their names")
    given = asked.parse_args()
    rows: list[dict[str, Any]] = []
    for client in [*from_the_paper(), *hospitals()]:
        for epsilon in (2.0, 8.0) if given.tasks in client.task else ():
            rows.append(compared(client, epsilon))
            print(shown(rows[-1]) + ("" if kept_bars(rows[-1]) else " above a bar"), flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    found = {"made": surroundings(), "delta": DELTA, "kept_bars": sum(map(kept_bars, rows)), "rows": rows}
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
