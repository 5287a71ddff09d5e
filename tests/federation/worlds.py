"""A small federation on disk: a consortium of hospitals, each with a policy, a ledger and some made-up records."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context
from flwr.clientapp import ClientApp
from torch import nn

from lrdp.accounting import Budget, Training
from lrdp.errors import LrdpError
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
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.local_task import LocalTask, Workbench
from lrdp.federation.client.participant import Participant
from lrdp.federation.local.in_process import Alter
from lrdp.federation.server.terms import Choose
from lrdp.federation.wire.flower import answering
from lrdp.federation.wire.frames import Frame
from lrdp.integrity.history import Audit, audit_history
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

    def another_folder(self) -> Path:
        """For a session of its own, with the registries and heads of the one before it, as the runbook says."""
        *_, last = folders = sorted(self.consortium.folder.glob("server*"))
        folder = self.consortium.folder / f"server-{len(folders) + 1}"
        folder.mkdir()
        for path in (*last.glob("registry-*.json"), last / "heads.json"):
            shutil.copy(path, folder)
        return folder

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
        newest = max(self.consortium.folder.glob("server*/receipts-*.txt"), key=lambda path: path.stat().st_mtime_ns)
        return audit_history(newest.read_text().split(), self.consortium.registry().digest)


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
    """``count`` hospitals, all present; ``before`` and ``after`` may alter or lose messages.

    They have trained before, in other worlds of this process: `reopened` makes clients that have not.
    """
    names = hospitals(count)
    given = {**dict.fromkeys(names, TRAINING), **(trainings or {})}
    consortium = found(folder / "consortium", given, min_roster=min_roster, rules=CommonRules(scheme=scheme))
    return _populated(consortium, practised(consortium), count, before, after)


def reopened(folder: Path, count: int, *, before: Alter | None = None, after: Alter | None = None) -> World:
    """The same hospitals, as another process finds them."""
    consortium = Consortium(folder=folder / "consortium")
    app = private_client_app(
        policy=str(consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml"),
        model=model,
        dataset=records,
        loss=TASK.loss,
    )
    return _populated(consortium, app, count, before, after)


TASK = LocalTask(model=model, dataset=records, loss=CrossEntropy(classes=2))


@cache
def _bench(number: int, *_stated: Any) -> Workbench:
    """One for all worlds: the check of a model takes longer than all else that most of them do."""
    return Workbench(TASK, {"partition-id": number})


def practised(consortium: Consortium) -> ClientApp:
    """As a private app, of clients whose model was checked when they trained in another world like this one."""

    @cache
    def participant(number: int) -> Participant:
        home = ClientHome(folder=consortium.client(f"hospital-{number}").folder)
        try:
            rule, identity = home.policy().mechanism.costliest, home.policy().identity
        except LrdpError:
            return Participant(home, Workbench(TASK, {"partition-id": number}))
        # What a bench remembers of a policy, and holds it to: another is another client's.
        stated = rule.name, rule.dataset_size, identity.clipped, identity.max_rows_per_unit
        return Participant(home, _bench(number, *stated))

    def handle(given: Frame, context: Context) -> Frame:
        return participant(int(context.node_config["partition-id"])).handle(given)

    return answering(handle)


def _populated(consortium: Consortium, app: ClientApp, count: int, before: Alter | None, after: Alter | None) -> World:
    hooks: dict[str, Any] = {name: hook for name, hook in (("before", before), ("after", after)) if hook is not None}
    nodes = {1 + number: Node(app, {"partition-id": number}) for number in range(count)}
    return World(consortium=consortium, names=hospitals(count), grid=InProcessGrid(nodes, **hooks))


def sampled(source: Any, most: int) -> Choose:
    """The paper's random selection: m_t of those present."""

    def choose(_round: int, present: Sequence[str]) -> Sequence[str]:
        return source.sample(list(present), min(most, len(present)))

    return choose
