"""How a run ends: with all of its rounds, or for a reason; and never without a verified round in silence."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from lrdp.errors import InvalidInput, LrdpError, NoVerifiedRound
from lrdp.federation.server.confirming import lacking
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.round_report import ObserveRound, RoundReport, tell
from lrdp.federation.server.terms import EvaluateFunction, Score, as_arrays, as_record

_FLOWER_LOG: Final = logging.getLogger("flwr")


class RunEnded(LrdpError):
    """No round can be made any more: the run ends here, with the last verified model."""


@dataclass(repr=False)
class RunResult(Result):
    """Flower's result; ``reason`` says why the run ended before all of its rounds, and is empty where it did not.

    ``average`` is that of the last verified models, where the terms ask for one; ``arrays`` are the last one's.
    ``best`` is the file of the verified model that ``evaluate_fn`` gave the best score, where it gave any.

    >>> RunResult(reason="no more clients came").reason
    'no more clients came'
    """

    reason: str = ""
    average: ArrayRecord | None = None
    best: Path | None = None


@dataclass(frozen=True)
class Judge:
    """Evaluates models on the server's own data, and keeps the best of those that were verified."""

    coordinator: Coordinator
    evaluate: EvaluateFunction | None
    score: Score

    def at_the_start(self, number: int, result: RunResult) -> None:
        """Evaluate the model that a run begins with: a server that died may not have come to it."""
        arrays = as_arrays(self.coordinator)
        found = self(number, arrays, verified=self.coordinator.round > 0)
        if found is not None:
            result.evaluate_metrics_serverapp[number] = found

    def __call__(self, number: int, arrays: ArrayRecord, *, verified: bool) -> MetricRecord | None:
        """What ``evaluate_fn`` says of the model after the attempt of this number."""
        found = self.evaluate(number, arrays) if self.evaluate is not None else None
        score = self.score(found) if found is not None and verified else None
        best = self.coordinator.progress.score
        if score is not None and math.isfinite(score) and (best is None or score > best):
            self.coordinator.note(best=self.coordinator.round, score=score)
        return found


def public_metrics(found: MetricRecord | None) -> dict[str, float]:
    """The plain numbers among what the server's evaluation found."""
    return {name: value for name, value in (found or {}).items() if isinstance(value, int | float)}


def told(coordinator: Coordinator, observers: Sequence[ObserveRound], report: RoundReport) -> None:
    """One line in Flower's log, which `flwr run --stream` shows, and one in ``rounds.jsonl``; then whoever watches."""
    _FLOWER_LOG.info(report.line)
    coordinator.archive.append_report(report)
    tell(observers, report)


COUNTED: Final = "it counts the attempts of the whole session, over all its runs"
"""What a run's ``num_rounds`` is."""


def tell_if_complete(coordinator: Coordinator, made: int, asked: int) -> None:
    """Say that there is nothing left to do, where a session has all of its rounds before the run begins."""
    if made >= asked:
        _FLOWER_LOG.info(
            "The session in %s has all of the %d rounds that are asked for, so none is made and nothing is spent: ask "
            "for more rounds to go on with it, or name another folder for a new session.",
            *(coordinator.archive.folder, asked),
        )


def _averaged(coordinator: Coordinator) -> ArrayRecord | None:
    """The average, where one is to be kept; a run that has its model does not fail for a file that is missing."""
    try:
        average = coordinator.archive.models.put_average(coordinator.round)
    except InvalidInput as problem:
        _FLOWER_LOG.warning("The average of the last models was not written: %s", problem)
        return None
    return None if average is None else as_record(average.layout, average.vector)


def _best(coordinator: Coordinator, result: RunResult) -> Path | None:
    """Where the best model lies; whoever evaluates and has none is told why."""
    best = coordinator.progress.best
    if best is not None:
        path = coordinator.archive.models.path(best)
        _FLOWER_LOG.info("The best model by evaluate_fn is that of round %d: %s", best, path)
        return path
    if result.evaluate_metrics_serverapp:
        _FLOWER_LOG.warning(
            "No best model was kept: evaluate_fn gave no accuracy and no loss. Terms(score=…) takes a function of its "
            "metrics, the higher the better, as in score=lambda found: -found['mse']."
        )
    return None


def closed(coordinator: Coordinator, courier: Courier, result: RunResult) -> RunResult:
    """Bring home the last ACCEPTs, so that the last receipt has its quorum too; then the model, and why it ended.

    Raises:
        NoVerifiedRound: where there is none, so that nobody takes the first model for a trained one.
    """
    courier.close()
    problem = lacking(coordinator.chronicle)
    if problem:  # those who owe a word may not have been asked for any work
        courier.present()
        courier.close()
        problem = lacking(coordinator.chronicle)
    coordinator.write_down()  # the last receipt, which has its quorum only now
    if problem and problem != result.reason:
        _FLOWER_LOG.warning("A receipt is missing: %s", problem)
    if not coordinator.round:
        none = f"of {coordinator.progress.tried} attempts none could be proved; the log and rounds.jsonl say why."
        reason = result.reason or f"{none} A larger num_rounds makes more."
        raise NoVerifiedRound(f"the run ended without a verified round, so there is no model to return: {reason}")
    result.arrays = as_arrays(coordinator)
    result.average = _averaged(coordinator)
    result.best = _best(coordinator, result)
    if result.reason:
        _FLOWER_LOG.warning("The run ends with the model of round %d: %s", coordinator.round, result.reason)
    return result
