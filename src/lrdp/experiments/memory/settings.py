"""The settings of the study of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lrdp.errors import InvalidInput
from lrdp.experiments.memory.contestants import ENGINES, ContestantMethod, Setting
from lrdp.experiments.networks import NETWORKS
from lrdp.experiments.study import decoded


@dataclass(frozen=True, kw_only=True)
class Run:
    """Steps to replay: whose, of which sizes, on which card. A ``card_gb`` or ``first`` batch of 0 is none."""

    contestant: str
    sampling: str
    expandable: bool = False
    card_gb: int = 0
    first: int = 0


@dataclass(frozen=True, kw_only=True)
class Replay:
    """As in the TOML, which says what they mean."""

    steps: int
    seeds: int
    recorded: tuple[int, ...]
    checked: int
    runs: Mapping[str, Run]

    def __post_init__(self) -> None:
        if len(self.recorded) != 2 or not 1 <= self.recorded[0] < self.recorded[1]:
            raise InvalidInput(
                f"replay.recorded must be two sizes, the smaller first, got {list(self.recorded)}: a line has two "
                f"points; nothing was run."
            )


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """As in the TOML, which says what they mean."""

    model: str
    records: int
    batch_size: int
    steps: int
    steps_per_cell: int
    seed: int
    alone: bool
    contestants: tuple[str, ...]
    process_steps: Mapping[str, int]
    methods: Mapping[str, ContestantMethod]
    replay: Replay

    def __post_init__(self) -> None:
        _known("model", self.model, NETWORKS)
        for name in (*self.contestants, *(run.contestant for run in self.replay.runs.values())):
            _known("a contestant", name, self.methods)
            _known(f"the engine of {name!r}", self.methods[name].engine, ENGINES)
        for name in self.process_steps:
            _known("a contestant of process_steps", name, self.methods)
        if not 1 <= self.steps_per_cell <= self.steps:
            raise InvalidInput(
                f"steps_per_cell must lie between 1 and steps={self.steps}, got {self.steps_per_cell}: nothing was run."
            )

    def setting(self, part: int = 0) -> Setting:
        """What contestants have in common; each part of a contestant's steps has randomness of its own."""
        return Setting(model=self.model, records=self.records, batch_size=self.batch_size, seed=1000 * self.seed + part)

    @property
    def parts(self) -> list[int]:
        """The numbers of steps that are taken in one process."""
        whole, rest = divmod(self.steps, self.steps_per_cell)
        return [self.steps_per_cell] * whole + [rest] * (rest > 0)


def settings_from(tables: Mapping[str, Any]) -> MemorySettings:
    """Checked before anything is run."""
    return decoded(MemorySettings, tables, "memory.toml")


def _known(what: str, name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        raise InvalidInput(f"{what} must be one of {', '.join(known)}, got {name!r}: nothing was run.")
