"""A small federation on disk: a consortium of hospitals, each with a policy, a ledger and some made-up records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord
from torch import nn

from lrdp.accounting import Budget, Training
from lrdp.federation import (
    CommonRules,
    Consortium,
    InProcessGrid,
    Node,
    Order,
    RoundReport,
    RunResult,
    Terms,
    VerifiedAverage,
    found,
    private_client_app,
)
from lrdp.federation.local.in_process import Alter
from lrdp.federation.server.terms import Choose
from lrdp.integrity.history import Audit, audit
from lrdp.ledger import Books, Scheme
from lrdp.training import CrossEntropy, TensorRecords

RECORDS = 120
TRAINING = Training(dataset_size=100, batch_size=8, rounds=6, local_steps=3, budget=Budget(epsilon=8.0, delta=1e-5))


def hospitals(count: int) -> list[str]:
    return [f"hospital-{number}" for number in range(count)]


def records(settings: Mapping[str, Any]) -> TensorRecords:
    """Two clouds that a linear model can tell apart."""
    source = torch.Generator().manual_seed(int(settings["partition-id"]))
    labels = torch.randint(0, 2, (RECORDS,), generator=source)
    return TensorRecords(torch.randn(RECORDS, 4, generator=source) + 2.0 * labels[:, None], labels)


def model() -> nn.Module:
    return nn.Linear(4, 2)


def initial() -> ArrayRecord:
    """The same first model in every test."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return ArrayRecord(model().state_dict())


@dataclass
class World:
    """A consortium, its grid, and what was reported of each round."""

    consortium: Consortium
    names: list[str]
    grid: InProcessGrid
    reports: list[RoundReport] = field(default_factory=list)

    def run(self, rounds: int, **terms: Any) -> RunResult:
        return self.strategy(**terms).start(self.grid, initial(), num_rounds=rounds, timeout=5)

    def strategy(self, *, order: Order | None = None, **terms: Any) -> VerifiedAverage:
        """``terms`` are those of Terms that are not this world's own."""
        own: dict[str, Any] = {
            "identity": self.consortium.server_identity(),
            "registry": self.consortium.registry(),
            "folder": self.consortium.server_folder,
            "order": order or Order(),
            "arrival": 5.0,
        }
        return VerifiedAverage(Terms(**own | terms), self.reports.append)

    def node(self, name: str) -> Node:
        return self.grid.nodes[1 + self.names.index(name)]

    def books(self, name: str) -> Books:
        with self.consortium.client(name).ledger() as ledger:
            return ledger.books

    def spent(self, name: str) -> float:
        with self.consortium.client(name).ledger() as ledger:
            return ledger.answer().spent.epsilon

    def audit(self) -> Audit:
        """The receipts of the last session, as an auditor sees them who pinned the registry."""
        newest = max(self.consortium.server_folder.glob("receipts-*.txt"), key=lambda path: path.stat().st_mtime_ns)
        return audit(newest.read_text().split(), self.consortium.registry().digest)


def world(
    folder: Path,
    count: int = 4,
    *,
    trainings: Mapping[str, Training] | None = None,
    before: Alter | None = None,
    after: Alter | None = None,
    min_roster: int | None = None,
    scheme: Scheme = Scheme.SKETCH,
) -> World:
    """``count`` hospitals, all present; ``before`` and ``after`` may alter or lose messages."""
    names = hospitals(count)
    given = {**dict.fromkeys(names, TRAINING), **(trainings or {})}
    found(folder / "consortium", given, min_roster=min_roster, rules=CommonRules(scheme=scheme))
    return reopened(folder, count, before=before, after=after)


def reopened(folder: Path, count: int, *, before: Alter | None = None, after: Alter | None = None) -> World:
    """The same hospitals, as another process finds them."""
    consortium = Consortium(folder=folder / "consortium")
    app = private_client_app(
        policy=str(consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml"),
        model=model,
        dataset=records,
        loss=CrossEntropy(classes=2),
    )
    hooks = {name: hook for name, hook in (("before", before), ("after", after)) if hook is not None}
    nodes = {1 + number: Node(app, {"partition-id": number}) for number in range(count)}
    return World(consortium=consortium, names=hospitals(count), grid=InProcessGrid(nodes, **hooks))


def sampled(source: Any, most: int) -> Choose:
    """The paper's random selection: m_t of those present."""

    def choose(_round: int, present: Sequence[str]) -> Sequence[str]:
        return source.sample(list(present), min(most, len(present)))

    return choose
