"""Three made-up hospitals in the format of the real files, and the shipped settings with less of everything."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lrdp.experiments import hospitals
from lrdp.experiments.study import Places, read_settings
from lrdp.experiments.study.settings import laid_over

SETTINGS = Path(__file__).parents[2] / "experiments" / "hospitals.toml"
SIZES = {"north": 61, "south": 47, "tiny": 23}
ACROSS = {
    "only_tasks": ["heart"],
    "epsilons": [8.0],
    "seeds": [0, 1],
    "rounds": 2,
    "rates": 2,
    "tasks": {"heart": {"low_memory": ["tiny"]}},
    "machines": {"limits_mb": []},
}


def write_heart(folder, *, changed=None):
    """As UCI's four hospitals; ``changed`` is the age of the first patient."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(41)
    names = [name for name, count in SIZES.items() for _ in range(count)]
    count = len(names)
    age = chance.normal(55, 9, count)
    table: dict[str, Any] = {
        name: chance.integers(0, 4, count).astype(np.float32) for name in ("cp", "restecg", "slope", "ca", "thal")
    }
    table |= {name: chance.integers(0, 2, count).astype(np.float32) for name in ("sex", "fbs", "exang")}
    table |= {name: chance.normal(140, 20, count).astype(np.float32) for name in ("trestbps", "chol", "thalach")}
    target = (age + chance.normal(0, 5, count) > 55).astype(np.int8)
    age[0] = age[0] if changed is None else changed
    oldpeak = np.where(chance.random(count) < 0.2, np.nan, chance.normal(1, 1, count)).astype(np.float32)
    table |= {"hospital": names, "age": age.astype(np.float32), "oldpeak": oldpeak, "target": target}
    pq.write_table(pa.table(table), folder / "heart_disease_uci4.parquet")


def small(**changes):
    """The shipped study of one task."""
    return hospitals.study(laid_over(laid_over(read_settings(SETTINGS, quick=False), ACROSS), changes))


def places(folder):
    return Places(data=folder / "data", features=folder / "features", results=folder / "results")
