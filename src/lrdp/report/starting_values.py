"""What to start training from: each value with the rule it comes from, its spread, and who measured it.

Every trial on private records costs budget, so a first guess is worth a rule. The constants are from
``docs/results/paper/utility.json`` and nothing else; a test computes them again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from lrdp.accounting import SizedGaussian

_MOVE: Final = 1.5  # of a weight, by the noise of a whole training: geometric mean of six tasks, 1.46 to 1.48
_SPREAD: Final = 2.4  # one standard deviation between tasks, as a factor: 2.35
_CLIP_NORM: Final = 1.0
_STUDY: Final = "utility study, six tasks, 150 tuned rates at 60 steps"


@dataclass(frozen=True, kw_only=True)
class StartingValue:
    """A value to begin with, and the two values between which tuned ones lay."""

    name: str
    value: float
    low: float
    high: float
    rule: str
    source: str

    @property
    def text(self) -> str:
        """One line."""
        between = "" if self.low == self.high else f" ({self.low:.12g} to {self.high:.12g})"
        return f"{self.name} {self.value:.12g}{between}: {self.rule} [{self.source}]"


def starting_values(step: SizedGaussian, steps: int, local_steps: int) -> tuple[StartingValue, ...]:
    """For a training run of ``steps`` steps, ``local_steps`` of them in each round."""
    rate = _MOVE / (step.noise_on_mean * math.sqrt(steps))
    return (
        StartingValue(
            name="learning rate",
            value=_two_digits(rate),
            low=_two_digits(rate / _SPREAD),
            high=_two_digits(rate * _SPREAD),
            rule=f"{_MOVE} B/(σ√T), so that noise alone moves a weight by {_MOVE} over the training; plain SGD, linear "
            f"heads on features of norm 1, mean over ten clients. This one rate for all tasks cost 0.1 to 0.7 points "
            f"of accuracy on five of them and 2.3 on EMNIST; its √T was not varied",
            source=_STUDY,
        ),
        _plain(
            "clip norm",
            _CLIP_NORM,
            "for features of norm 1, where a linear head's gradients are at most √2 long; "
            "it was not tuned: scale it with the features, and the learning rate inversely",
            _STUDY,
        ),
        _plain(
            "local steps",
            local_steps,
            "as few as keep the training within 50 rounds, or as given: each is charged "
            "in any case, and fewer keep clients together",
            "this plan",
        ),
        _plain(
            "normaliser",
            step.normaliser,
            "sums are divided by the public size, never by the number of records "
            "that were drawn; with clients of different size each has its own",
            "the mechanism",
        ),
    )


def record(values: tuple[StartingValue, ...]) -> list[dict[str, Any]]:
    """For programs."""
    return [vars(value) for value in values]


def _plain(name: str, value: float, rule: str, source: str) -> StartingValue:
    return StartingValue(name=name, value=value, low=value, high=value, rule=rule, source=source)


def _two_digits(value: float) -> float:
    return round(value, 1 - math.floor(math.log10(value)))
