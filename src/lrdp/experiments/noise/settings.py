"""The settings of the study of noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lrdp.errors import InvalidInput
from lrdp.experiments.noise.calibrating import ACCOUNTANTS, SAMPLINGS, NoiseTask, NoiseWay
from lrdp.experiments.study import decoded


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """Caps at these numbers of standard deviations of a batch's size above what is expected."""

    tasks: tuple[str, ...]
    epsilons: tuple[float, ...]
    deviations: tuple[float, ...]
    accountant: str


@dataclass(frozen=True, kw_only=True)
class NoiseSettings:
    """As in the TOML, which says what they mean."""

    clients: int
    epsilons: tuple[float, ...]
    delta: float
    only_tasks: tuple[str, ...]
    reference: str
    accountants: Mapping[str, NoiseWay]
    tasks: Mapping[str, NoiseTask]
    frontier: Frontier

    def __post_init__(self) -> None:
        _known("reference", self.reference, self.accountants)
        for name, way in self.accountants.items():
            _known(f"accountants.{name!r}.sampling", way.sampling, SAMPLINGS)
            _known(f"accountants.{name!r}.accountant", way.accountant, ACCOUNTANTS)
        for name in (*self.only_tasks, *self.frontier.tasks):
            _known("a task of only_tasks or frontier.tasks", name, self.tasks)
        _known("frontier.accountant", self.frontier.accountant, ACCOUNTANTS)
        if self.clients < 1:
            raise InvalidInput(f"clients must be at least 1, got {self.clients}: nothing was run.")

    @property
    def chosen(self) -> Mapping[str, NoiseTask]:
        """The tasks that multipliers are found for."""
        return {name: task for name, task in self.tasks.items() if not self.only_tasks or name in self.only_tasks}


def settings_from(tables: Mapping[str, Any]) -> NoiseSettings:
    """Checked before anything is run."""
    return decoded(NoiseSettings, tables, "noise.toml")


def _known(what: str, name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        raise InvalidInput(f"{what} must be one of {', '.join(known)}, got {name!r}: nothing was run.")
