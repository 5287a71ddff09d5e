"""What private epochs could gain at most: random allocation beside Poisson, in the settings that a plan recommends.

Each record takes part in exactly one of the t steps of a pass. Removal has an exact Rényi divergence at whole orders,
α!·t^{-α} times the coefficient of x^α in (Σ_k x^k e^{k(k-1)/2σ²}/k!)^t. For addition nothing is proved here: with two
steps a pass it is computed by quadrature, with more not at all. So σ over Poisson's is the least that it could be:
removal alone, whole Rényi orders, no cap. Run: make bench-allocation ARGS="--out docs/results/allocation.json"
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from lrdp.experiments.study.surroundings import surroundings

DELTA, MOST_ORDER = 1e-5, 96
ORDERS: Final = np.arange(2, MOST_ORDER + 1)
TERMS: Final = np.arange(MOST_ORDER + 1)
PLANS: Final = Path(__file__).parents[1] / "docs/results/plans.json"
Logs = NDArray[np.float64]


def times(first: Logs, second: Logs) -> Logs:
    """The product of two power series up to the largest order, coefficients as logarithms."""
    shifted = np.full((len(TERMS), len(TERMS)), -np.inf)
    for degree in TERMS:
        shifted[degree, degree:] = first[degree] + second[: len(TERMS) - degree]
    return np.asarray(logsumexp(shifted, axis=0))


def powered(series: Logs, power: int) -> Logs:
    """A series to a whole power, by squaring."""
    result = np.where(TERMS == 0, 0.0, -np.inf)
    while power:
        if power & 1:
            result = times(result, series)
        series, power = times(series, series), power >> 1
    return result


def allocated(noise: float, steps: int) -> Logs:
    """The divergence of one pass of ``steps`` steps when a record is removed, at each of ``ORDERS``."""
    series = TERMS * (TERMS - 1) / (2 * noise**2) - gammaln(TERMS + 1)
    moments = powered(series, steps)[ORDERS] + gammaln(ORDERS + 1) - ORDERS * math.log(steps)
    return np.asarray(moments / (ORDERS - 1))


def poisson(noise: float, steps: int) -> Logs:
    """Of ``steps`` Poisson steps that draw a record with probability 1/steps (arXiv 1908.10530v1, Section 3.3)."""
    order, term = ORDERS[:, None], TERMS[None, :]
    left = np.maximum(order - term, 0)
    chosen = gammaln(order + 1) - gammaln(term + 1) - gammaln(left + 1)
    absent = math.log1p(-1 / steps) if steps > 1 else -1e9
    terms = chosen - term * math.log(steps) + left * absent + term * (term - 1) / (2 * noise**2)
    return np.asarray(steps * logsumexp(np.where(term <= order, terms, -np.inf), axis=1) / (ORDERS - 1))


def epsilon(divergences: Logs) -> float:
    """The conversion of arXiv 2004.00010v4, Proposition 12, at the best whole order."""
    rest = np.log1p(-1 / ORDERS) - (math.log(DELTA) + np.log(ORDERS)) / (ORDERS - 1)
    return float(np.min(divergences + rest))


def least_noise(one_pass: Callable[[float, int], Logs], steps: int, passes: float, target: float) -> float:
    def excess(noise: float) -> float:
        return epsilon(passes * one_pass(noise, steps)) - target

    return float(brentq(excess, 0.2, 500.0, rtol=1e-5))


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """A plan's own batch and passes, with whole steps in a pass."""
    steps = max(1, round(row["records"] / row["batch"]))
    passes = row["steps"] / steps
    noises = [least_noise(way, steps, passes, row["epsilon"]) for way in (allocated, poisson)]
    return {
        "task": row["task"],
        "epsilon": row["epsilon"],
        "steps_in_a_pass": steps,
        "passes": round(passes, 2),
        "allocated": noises[0],
        "poisson": noises[1],
        "ratio": noises[0] / noises[1],
    }


def added(noise: float, order: int) -> float:
    """The divergence of one pass of two steps when a record is added: E_Q[(P/Q)^{1-order}], by the trapezoid rule."""
    places = np.linspace(-14 - order / noise, 14.0, 1501)
    normal = -(places**2) / 2 - math.log(math.sqrt(2 * math.pi)) + math.log(places[1] - places[0])
    ratio = np.logaddexp(places[:, None] / noise, places[None, :] / noise) - math.log(2) - 1 / (2 * noise**2)
    return float(logsumexp((1 - order) * ratio + normal[:, None] + normal[None, :])) / (order - 1)


def check() -> None:
    """One step a pass is the Gaussian mechanism both ways; two are listed by hand."""
    by_hand = sum(math.comb(3, k) / 8 * math.exp((k * (k - 1) + (3 - k) * (2 - k)) / 8) for k in range(4))
    alone = np.allclose(allocated(2.0, 1), ORDERS / 8) and np.allclose(poisson(2.0, 1), ORDERS / 8)
    if not alone or not math.isclose(allocated(2.0, 2)[1], math.log(by_hand) / 2):
        sys.exit("the divergence is not that of the mechanism: nothing was compared.")


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--out", type=Path, default=Path("build/allocation.json"))
    given = asked.parse_args()
    check()
    rows = [compared(row) for row in json.loads(PLANS.read_text(encoding="utf-8"))["rows"]]
    for row in rows:
        print(json.dumps(row))
    orders = (2, 3, 5, 9, 17, 33)
    both = [(added(noise, order), allocated(noise, 2)[order - 2]) for noise in (0.9, 1.5, 2.5, 5.0) for order in orders]
    added_over_removed = max(first / second for first, second in both)
    print(f"two steps a pass, {len(both)} points: addition has at most {added_over_removed:.4f} of what removal has")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    found = {"made": surroundings(), "added_over_removed_at_two_steps": added_over_removed, "rows": rows}
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
