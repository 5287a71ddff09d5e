"""The demonstration: a federation that is founded, run, and read off from its own books and receipts."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.experiments import digits
from lrdp.experiments.demo_clients import DemoHospitals
from lrdp.experiments.dishonest import Cheat
from lrdp.experiments.story import LEARNING_RATE, Story
from lrdp.federation import Consortium, Order, RoundReport, Terms, VerifiedAverage, found
from lrdp.federation.local.simulation import Federation, NamedArrays
from lrdp.federation.server.settling import EXHAUSTED
from lrdp.ledger import State

RunFederation = Callable[[Federation], None]
_FIRST_MODEL: Final = 2411


@dataclass(frozen=True, kw_only=True)
class Spending:
    """One client's figures, read from its ledger.

    ``epsilon`` is guaranteed under any adaptivity; ``epsilon_fixed`` is what the same steps would cost had they been
    fixed in advance. ``charges`` were paid for, and ``lost`` of them have no update to show for it.
    """

    client: str
    epsilon: float
    epsilon_fixed: float
    budget: float
    delta: float
    charges: int
    steps: int
    lost: int
    refusals: dict[str, int]
    folder: str

    @classmethod
    def of(cls, consortium: Consortium, name: str) -> Spending:
        """Every entry of the ledger is checked on the way."""
        home = consortium.client(name)
        with closing(home.ledger()) as ledger:
            answer, books = ledger.answer(), ledger.books
        return cls(
            client=name,
            epsilon=answer.guaranteed.epsilon,
            epsilon_fixed=answer.spent.epsilon,
            budget=books.budget.epsilon,
            delta=books.budget.delta,
            charges=len(books.charges.states),
            steps=sum(books.charges.history.values()),
            lost=sum(state is State.RESERVED for state in books.charges.states.values()),
            refusals={refusal.value: count for refusal, count in books.refusals.by_reason.items()},
            folder=str(home.folder),
        )


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a round, counted from 1; ``verdicts`` are those of participants who refused the sum.

    ``killed`` are those who fell silent having paid for an update that is lost.
    """

    round: int
    attempt: int
    participants: tuple[str, ...]
    away: tuple[str, ...]
    refused: dict[str, str]
    killed: tuple[str, ...]
    verified: bool
    verdicts: dict[str, str]
    problem: str
    epsilon_least: float
    epsilon_most: float
    accuracy: float

    def as_record(self) -> dict[str, Any]:
        """For a line of JSON."""
        return {"kind": "round", **asdict(self)}


ObserveAttempt = Callable[[Attempt], None]


@dataclass
class _AttemptWatch:
    """Puts together what the strategy reports of an attempt, what the ledgers say, and the model's accuracy."""

    story: Story
    consortium: Consortium
    observe: ObserveAttempt
    reports: list[RoundReport] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    def evaluate(self, _attempt: int, parameters: NamedArrays) -> None:
        self.accuracies.append(digits.accuracy(parameters))

    def report(self, report: RoundReport) -> None:
        self.reports.append(report)
        self.observe(self._attempt(report))

    def _attempt(self, report: RoundReport) -> Attempt:
        spending = {name: Spending.of(self.consortium, name) for name in self.story.names}
        epsilons = [each.epsilon for each in spending.values()]
        refused = {name: code for name, code in report.declined.items() if name not in report.participants}
        return Attempt(
            round=report.model + 1,
            attempt=sum(each.model == report.model for each in self.reports),
            participants=report.participants,
            away=self._away(report),
            refused=refused,
            killed=tuple(name for name, code in refused.items() if code == "silent" and spending[name].lost),
            verified=report.verified,
            verdicts={name: code for name, code in report.declined.items() if name in report.participants},
            problem=report.problem,
            epsilon_least=min(epsilons),
            epsilon_most=max(epsilons),
            accuracy=self.accuracies[-1],
        )

    def _away(self, report: RoundReport) -> tuple[str, ...]:
        """Those whose turn it was to be away, and who had not already left for good."""
        left = {name for each in self.reports for name, code in each.declined.items() if code in EXHAUSTED}
        there = {*report.participants, *report.declined, *left}
        return tuple(name for name in self.story.away(report.model) if name not in there)


def run(story: Story, folder: Path, engine: RunFederation, observe: ObserveAttempt) -> dict[str, Any]:
    """Found the consortium, run it, and return the summary; raises InvalidInput where the folder exists."""
    folder, begun = files.followed(folder), time.monotonic()
    consortium = _founded(folder, story)
    watch = _AttemptWatch(story=story, consortium=consortium, observe=observe)
    terms = Terms(
        identity=consortium.server_identity(),
        registry=consortium.registry(),
        folder=consortium.server_folder,
        order=Order(learning_rate=LEARNING_RATE),
        choose=story.choose,
    )
    cheats = () if story.cheated is None else (story.cheated,)
    strategy = VerifiedAverage(terms, watch.report, settle=Cheat(cheats))
    engine(
        Federation(
            strategy=strategy,
            recipe=DemoHospitals(folder=folder, names=story.names, killed=story.killed),
            nodes=story.clients,
            parameters=first_model(),
            rounds=story.attempts,
            evaluate=watch.evaluate,
            log=folder / "logs",
        )
    )
    return {**_summary(watch), "seconds": round(time.monotonic() - begun, 1)}


def _founded(folder: Path, story: Story) -> Consortium:
    """Where the disk is full nothing is left, so that the same folder can be named again: nothing was charged yet."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise InvalidInput(
            f"{folder} exists: ledgers and receipts are never overwritten, so name another --folder."
        ) from None
    try:
        return found(folder, story.trainings())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def first_model() -> NamedArrays:
    """A public model, the same in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(_FIRST_MODEL)
        return {name: values.detach().numpy() for name, values in digits.Net().named_parameters()}


def _summary(watch: _AttemptWatch) -> dict[str, Any]:
    consortium, reports = watch.consortium, watch.reports
    taken = Counter(name for report in reports if report.verified for name in report.participants)
    (receipts,) = consortium.server_folder.glob("receipts-*.txt")
    return {
        "kind": "summary",
        "clients": [{**asdict(Spending.of(consortium, name)), "rounds": taken[name]} for name in watch.story.names],
        "rounds_run": len(reports),
        "rounds_verified": sum(report.verified for report in reports),
        "accuracy_before": watch.accuracies[0],
        "accuracy_after": watch.accuracies[-1],
        "folder": str(consortium.folder),
        "receipts": str(receipts),
        "registry_sha256": consortium.registry().digest.hex(),
        "logs": str(consortium.folder / "logs"),
    }
