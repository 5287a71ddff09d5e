"""Constant memory against Poisson with Opacus's PRV by seeds that share nothing: lots, batches and noise of their own.

Settings, σ and rates are those of the evaluation (docs/results/paper/utility.json); heads are trained in closed form
(accuracy_heads.py), so that there can be many seeds. Paired ones show that the methods do the same with the same noise;
these show what somebody sees who runs one method or the other. Runs that ``--out`` has already are not run again.
Run: python benchmarks/accuracy_independent.py --data-dir data --features build/features
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean, variance
from typing import Any, Final

import numpy as np
from accuracy_heads import Federation, How, Share, averaged, check_against_engine, trained
from scipy.stats import t as student

from lrdp.accounting import TruncatedPoissonGaussian
from lrdp.experiments.data import DataSettings, prepared
from lrdp.experiments.study import Places
from lrdp.experiments.study.surroundings import surroundings

PAPER: Final = Path("docs/results/paper/utility.json")
FEATURES: Final = {"mnist": "scattering", "cifar10": "efficientnet", "sst2": "sentence"}
METHODS: Final = ("poisson-prv", "truncated")
CAP_DEVIATIONS: Final = {"poisson-prv": 8, "truncated": 5}
CLIENTS, ROUNDS, LOCAL_STEPS, JUDGED = 10, 12, 5, 3
FIRST_SEED: Final = {"poisson-prv": 1_000, "truncated": 2_000}


@cache
def _data(places: Places, task: str) -> list[tuple[Any, Any]]:
    found = prepared(DataSettings(data=task, features=FEATURES[task]), places)
    splits = (found.train, found.test)
    return [
        (np.ascontiguousarray(split.inputs.float().numpy(), np.float32), np.asarray(split.labels)) for split in splits
    ]


def scored(places: Places, row: Mapping[str, Any], seed: int) -> float:
    """Percent right of the mean of the last fifth of the models, as the evaluation judges them."""
    (inputs, labels), (unseen, right) = _data(places, row["task"])
    size, batch = row["dataset_size"], row["batch_size"]
    cap = math.ceil(batch + CAP_DEVIATIONS[row["method"]] * math.sqrt(batch))
    step = TruncatedPoissonGaussian(
        dataset_size=size, batch_size=batch, cap=cap, noise_multiplier=row["noise_multiplier"]
    )
    lot = np.random.default_rng([seed, 7]).permutation(len(labels))[: CLIENTS * (size - 1)].reshape(CLIENTS, -1)
    shares = [Share(inputs[part], labels[part]) for part in lot]
    given = Federation(
        shares=shares, steps=[step] * CLIENTS, classes=int(labels.max()) + 1, rounds=ROUNDS, local_steps=LOCAL_STEPS
    )
    model = averaged(trained(given, How(), row["rate"], seed), How(window=JUDGED)).astype(np.float32)
    return 100 * float(((unseen @ model.T).argmax(1) == right).mean())


def difference(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Of two means, with Welch's 95% interval."""
    parts = [variance(each) / len(each) for each in (ours, theirs)]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, (ours, theirs), strict=True))
    reach = float(student.ppf(0.975, freedom)) * error
    gap = fmean(ours) - fmean(theirs)
    return {"gap": gap, "low": gap - reach, "high": gap + reach}


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--data-dir", type=Path, default=Path("data"))
    asked.add_argument("--features", type=Path, default=Path("build/features"))
    asked.add_argument("--out", type=Path, default=Path("docs/results/accuracy-independent.json"))
    asked.add_argument("--tasks", default=",".join(FEATURES))
    asked.add_argument("--epsilons", default="2,8")
    asked.add_argument("--seeds", type=int, default=60, help="of each method")
    given = asked.parse_args()
    places = Places(data=given.data_dir, features=given.features, results=given.out.parent)
    check_against_engine()
    paper = {(row["task"], row["method"], row["epsilon"]): row for row in json.loads(PAPER.read_text())["rows"]}
    stored = json.loads(given.out.read_text()) if given.out.exists() else {"made": [], "scores": {}, "gaps": {}}
    stored["made"].append(surroundings())
    for task in given.tasks.split(","):
        for epsilon in map(float, given.epsilons.split(",")):
            found = {}
            for method in METHODS:
                known = stored["scores"].setdefault(f"{task} {epsilon:g} {method}", [])
                for seed in range(len(known), given.seeds):
                    known.append(scored(places, paper[task, method, epsilon], FIRST_SEED[method] + seed))
                    given.out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
                found[method] = known
            gap = difference(found["truncated"], found["poisson-prv"])
            stored["gaps"][f"{task} {epsilon:g}"] = gap
            means = " ".join(f"{name} {fmean(each):.2f}" for name, each in found.items())
            print(
                f"{task} ε {epsilon:g}: {means}, {gap['gap']:+.3f} ({gap['low']:+.3f} … {gap['high']:+.3f})", flush=True
            )
            given.out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
