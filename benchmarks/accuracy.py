"""What each thing that is said to help private training does at equal ε: an ablation on linear heads, by paired seeds.

Every line is compared with the plain one of its task: truncated Poisson, SGD, flat clipping, the last model. Learning
rates are chosen for each line among seven or eight, the same for all lines of a task but for the optimiser's own scale,
on validation data and by three seeds that are not among those it is judged by. Rows that ``--out`` has already, with
the same rates, are not run again.
Run: python benchmarks/accuracy.py --data-dir data --features build/features --out docs/results/accuracy.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from accuracy_heads import (
    Adam,
    Federation,
    How,
    Sgd,
    Step,
    automatic,
    averaged,
    check_against_engine,
    private_moments,
    shorter,
    trained,
)
from accuracy_tasks import TUNING_SEEDS, Task, World, tasks

from lrdp.accounting import Adjacency, Budget, FullBatchGaussian, PldAccountant, TruncatedPoissonGaussian, least_noise
from lrdp.experiments.study import Places
from lrdp.experiments.study.surroundings import surroundings
from lrdp.experiments.utility.statistics import gap

SEEDS, DELTA = tuple(range(10)), 1e-5
AS_USUAL: Final = How()


@dataclass(frozen=True, kw_only=True)
class Line:
    """What is changed: how it is trained, what rates are multiplied by, and whether moments are found first.

    ``whole``: every step reads the whole data set.
    """

    name: str
    how: How = AS_USUAL
    slower: float = 1.0
    adam: bool = False
    moments: str = ""
    whole: bool = False
    cost: str = "none"


PLAIN: Final = Line(name="plain")
MOMENTUM, ADAM = partial(Sgd, momentum=0.9), Adam
GAMMAS: Final = (0.1, 0.01, 0.001)
LINES: Final = (
    PLAIN,
    Line(name="mean of the last fifth", how=How(window=-5), cost="none"),
    Line(name="mean of the last half", how=How(window=-2), cost="none"),
    Line(name="decay 0.7 a round", how=How(window=10_000, decay=0.7), cost="none"),
    Line(name="momentum 0.9, new each round", how=How(optimiser=MOMENTUM), slower=0.3, cost="1 model"),
    Line(name="momentum 0.9, kept", how=How(optimiser=MOMENTUM, kept=True), slower=0.1, cost="1 model"),
    Line(name="Adam, new each round", how=How(optimiser=ADAM), adam=True, cost="2 models"),
    Line(name="Adam, kept", how=How(optimiser=ADAM, kept=True), adam=True, cost="2 models"),
    Line(
        name="Adam, kept, noise taken off",
        how=How(optimiser=partial(Adam, corrected=True), kept=True),
        adam=True,
        cost="2 models",
    ),
    *(
        Line(name=f"automatic clipping, γ = {gamma:g}", how=How(clip=partial(automatic, gamma=gamma)))
        for gamma in GAMMAS
    ),
    *(Line(name=f"flat clipping at C/{times}", how=How(clip=partial(shorter, times=times))) for times in (3, 10, 30)),
    Line(name="one normaliser for all", how=How(common=True), cost="none"),
    Line(name="the whole data set in a step", whole=True, cost="2 times the rows"),
    Line(name="private mean", moments="centred", cost="1 step"),
    Line(name="private mean and scale", moments="standardised", cost="1 step"),
)


@lru_cache(maxsize=256)
def _quiet(size: int, batch: int, steps: int, epsilon: float) -> Step:
    """Batches of that many, or of all where 0 is given; with the least noise."""
    cap = min(size, math.ceil(batch + 5 * math.sqrt(batch)))
    first: Step = FullBatchGaussian(dataset_size=size, noise_multiplier=1.0)
    if batch:
        first = TruncatedPoissonGaussian(dataset_size=size, batch_size=batch, cap=cap, noise_multiplier=1.0)
    accountant = PldAccountant(adjacency=Adjacency.ADD_REMOVE)
    return least_noise(first, steps, Budget(epsilon=epsilon, delta=DELTA), accountant).mechanism


def federation(task: Task, world: World, epsilon: float, line: Line) -> Federation:
    """Every client with the noise for all of its steps, and for one more where moments are found first."""
    steps = task.rounds * task.local_steps + bool(line.moments)
    sizes = [len(share.labels) for share in world.shares]
    batches = [0 if line.whole else max(1, round(task.share * size)) for size in sizes]
    quiet = [_quiet(size + 1, batch, steps, epsilon) for size, batch in zip(sizes, batches, strict=True)]
    return Federation(
        shares=world.shares, steps=quiet, classes=task.classes, rounds=task.rounds, local_steps=task.local_steps
    )


def run(task: Task, line: Line, epsilon: float, rate: float, seed: int) -> tuple[float, float]:
    """How good the model of one training is, on validation data and on the test's."""
    world = task.made(seed)
    given = federation(task, world, epsilon, line)
    if line.moments:
        mean, scale = private_moments(given, task.reach, seed)
        spread = np.sqrt(np.mean(scale**2)) * np.ones_like(scale) if line.moments == "centred" else scale
        width = math.sqrt(len(mean))
        world = world.with_inputs(lambda inputs: ((inputs - mean) / (spread * width)).astype(np.float32))
        given = replace(given, shares=world.shares)
    models = trained(given, line.how, rate, seed)
    how = replace(line.how, window=math.ceil(len(models) / -line.how.window)) if line.how.window < 0 else line.how
    model = averaged(models, how).astype(np.float32)
    return world.validation(model), world.test(model)


def _rates_of(task: Task, line: Line) -> tuple[float, ...]:
    return task.adam_rates if line.adam else tuple(rate * line.slower for rate in task.rates)


def judged(task: Task, line: Line, epsilon: float) -> dict[str, Any]:
    """A line with the rate that suits it."""
    begun = time.process_time()
    rates = _rates_of(task, line)
    tried = {rate: fmean(run(task, line, epsilon, rate, seed)[0] for seed in TUNING_SEEDS) for rate in rates}
    rate = max(tried, key=lambda each: tried[each])
    scores = {seed: run(task, line, epsilon, rate, seed)[1] for seed in SEEDS}
    runs = len(rates) * len(TUNING_SEEDS) + len(SEEDS)
    return {
        "rate": rate,
        "rates": list(rates),
        "rate_at_edge": rate in (rates[0], rates[-1]),
        "scores": scores,
        "mean": fmean(scores.values()),
        "seconds": round((time.process_time() - begun) / runs, 3),
    }


def _lines(name: str, among: Sequence[str]) -> Iterator[Line]:
    """Those of a task; clients of equal size have one normaliser anyway, and large ones do not read all at once."""
    if name == "views":
        yield replace(PLAIN, name="4 views of a record", cost="4 times the rows")
        return
    for line in LINES:
        asked = line is PLAIN or any(word in line.name for word in among)
        if asked and not ((line.how.common or line.whole) and name not in ("heart", "tcga")):
            yield line


def _against(row: Mapping[str, Any], base: Mapping[Any, float]) -> dict[str, Any]:
    """With its gap, paired by seed, to what it is compared with."""
    scores = {int(seed): score for seed, score in row["scores"].items()}
    found = gap(scores, {int(seed): score for seed, score in base.items()})
    return {**row, "gap": found.mean, "low": found.paired[0], "high": found.paired[1]}


def ablation(
    chosen: Mapping[str, Task], epsilons: Sequence[float], among: Sequence[str], known: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """A row for each task, ε and line; gaps are to the plain line of the same task, and views' to pixels without."""
    rows = {(row["task"], row["epsilon"], row["line"]): row for row in known}
    pixels = next((task.title for name, task in chosen.items() if name == "pixels"), "")
    for name, task in chosen.items():
        for epsilon in epsilons:
            for line in _lines(name, among):
                row = dict(rows.get((task.title, epsilon, line.name), {}))
                if row.get("rates") != list(_rates_of(task, line)):
                    about = {"task": task.title, "epsilon": epsilon, "line": line.name, "cost": line.cost}
                    row = {**about, **judged(task, line, epsilon)}
                rows[task.title, epsilon, line.name] = row
                base = rows[pixels if name == "views" else task.title, epsilon, PLAIN.name]
                yield _against(row, base["scores"])
            if pixels and name == "scattering":
                plain = {**rows[task.title, epsilon, PLAIN.name], "line": "scattering features in place of pixels"}
                yield _against({**plain, "cost": "once, public"}, rows[pixels, epsilon, PLAIN.name]["scores"])


def _shown(row: Mapping[str, Any]) -> str:
    rate = f"{row['rate']:g}{'*' if row['rate_at_edge'] else ''}"
    figures = f"{row['mean']:.2f} | {row['gap']:+.2f} | {row['low']:+.2f} … {row['high']:+.2f} | {rate}"
    return f"| {row['task']} | {row['epsilon']:g} | {row['line']} | {figures} | {row['cost']} | {row['seconds']:.2f} |"


def _stored(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {"made": [], "rows": []}


def _key(row: Mapping[str, Any]) -> tuple[str, float, str]:
    return row["task"], row["epsilon"], row["line"]


def main() -> None:
    """Write every row as it comes."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--data-dir", type=Path, default=Path("data"))
    asked.add_argument("--features", type=Path, default=Path("build/features"))
    asked.add_argument("--out", type=Path, default=Path("build/accuracy.json"))
    asked.add_argument("--tasks", default="heart,tcga,pixels,views,scattering")
    asked.add_argument("--epsilons", default="2,8")
    asked.add_argument("--lines", default="", help="only those with one of these in their names, and plain")
    given = asked.parse_args()
    places = Places(data=given.data_dir, features=given.features, results=given.out.parent)
    check_against_engine()
    known = tasks(places)
    stored = _stored(given.out)
    chosen = {name: known[name] for name in given.tasks.split(",")}
    epsilons = [float(each) for each in given.epsilons.split(",")]
    rows = {_key(row): row for row in stored["rows"]}
    made = [*stored["made"], surroundings()]
    for row in ablation(chosen, epsilons, given.lines.split(","), list(rows.values())):
        rows[_key(row)] = row
        print(_shown(row), flush=True)
        given.out.write_text(json.dumps({"made": made, "rows": [*rows.values()]}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
