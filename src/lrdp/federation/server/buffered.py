"""Buffered asynchronous averaging: the server steps when enough updates are in, however old the model they came from.

Clients train whenever they are there and keep their noised update; nobody waits for the slowest. Once a buffer is full,
its owners make a round of it: each commits to its update at the *current* position and verifies the sum, exactly as in
a synchronous round. So integrity holds buffer by buffer, and asynchrony costs one small exchange.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid

from lrdp import limits
from lrdp.errors import Unsupported
from lrdp.federation.server.asking import Asking
from lrdp.federation.server.confirming import lacking, overtaken
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.nodes import SILENT
from lrdp.federation.server.options import refuse_options
from lrdp.federation.server.pauses import Pauses
from lrdp.federation.server.resuming import opened
from lrdp.federation.server.rotating import Rotating
from lrdp.federation.server.round_clock import ROUND_SECONDS
from lrdp.federation.server.round_report import ObserveRound, RoundReport
from lrdp.federation.server.run_result import (
    COUNTED,
    Judge,
    RunEnded,
    RunResult,
    closed,
    public_metrics,
    tell_if_complete,
    told,
)
from lrdp.federation.server.settling import UNANSWERED, gathered, settled
from lrdp.federation.server.sole_server import alone_in
from lrdp.federation.server.terms import EvaluateFunction, Terms, as_arrays
from lrdp.federation.wire.questions import Decline, TrainedAhead

_POLL_SECONDS: Final = 0.2


class BufferedAverage:
    """``buffer`` updates make a step; how stale each was is in the reports, of which ``observers`` are told.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from lrdp.accounting import Budget, Training
    >>> from lrdp.federation import ExactRounds, found
    >>> training = Training(
    ...     dataset_size=40, batch_size=8, rounds=2, local_steps=1, budget=Budget(epsilon=8.0, delta=1e-4)
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     ours = found(Path(folder) / "consortium", dict.fromkeys("abcde", training))
    ...     own = {"identity": ours.server_identity(), "registry": ours.registry(), "folder": ours.server_folder}
    >>> strategy = BufferedAverage(Terms(**own), print, buffer=3)
    >>> BufferedAverage(Terms(scheme=ExactRounds(), **own), buffer=3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lrdp.errors.Unsupported: BufferedAverage has no ExactRounds: ...

    It is started as :class:`VerifiedAverage` is, which has a whole federation for an example.
    """

    def __init__(self, terms: Terms, *observers: ObserveRound, buffer: int, **options: Any) -> None:
        refuse_options("BufferedAverage", options)
        limits.whole("buffer", buffer, 3, "of two, each could subtract itself from the sum")
        if terms.scheme.masks:
            raise Unsupported(
                "BufferedAverage has no ExactRounds: a masked update counts with all that it was masked with or not at "
                "all, so whoever leaves a buffer would spoil it for everybody in it, and a buffer is there for clients "
                "that are slow or leave. Use VerifiedAverage, or SketchRounds; nothing was started."
            )
        self._terms, self._buffer, self._observers = terms, buffer, observers

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = ROUND_SECONDS,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> RunResult:
        """Run until ``num_rounds`` buffers of the session are verified, or no other can come together.

        As with :class:`VerifiedAverage`, a session that lies in the folder goes on, and a run that ends before says
        why; without a verified round it raises NoVerifiedRound.
        """
        limits.whole("buffer", self._buffer, self._terms.least, "fewer make no round of this session")
        limits.whole("num_rounds", num_rounds, 0, COUNTED)
        with alone_in(self._terms.folder):
            coordinator = opened(self._terms, initial_arrays)
            coordinator.note(order=self._terms.order.encode().hex())
            workshop = Workshop(grid, coordinator, self._terms, timeout)
            judge, result = Judge(coordinator, evaluate_fn, self._terms.score), RunResult()
            tell_if_complete(coordinator, coordinator.round, num_rounds)
            judge.at_the_start(coordinator.round, result)
            try:
                while coordinator.round < num_rounds:
                    self._advance(workshop, judge, result)
            except RunEnded as ended:
                result.reason = str(ended)
            return closed(coordinator, workshop.courier, result)

    def _advance(self, workshop: Workshop, judge: Judge, result: RunResult) -> None:
        workshop.keep_busy(self._buffer)
        full = workshop.oldest(self._buffer)
        if not full:
            workshop.require_hope(self._buffer, judge.coordinator.round)
            time.sleep(_POLL_SECONDS)
            return
        began = time.monotonic()
        report = workshop.step(full)
        judged = None
        try:
            judged = _judged(result, judge, report) if report.verified else None
        finally:  # the attempt was made, whatever an evaluation comes to
            seconds, public = round(time.monotonic() - began, 3), public_metrics(judged)
            told(judge.coordinator, self._observers, replace(report, seconds=seconds, metrics=public))


class Workshop:
    """Who trains, whose update waits, and who is spent. What waits is saved, for it is paid for."""

    def __init__(self, grid: Grid, coordinator: Coordinator, terms: Terms, timeout: float) -> None:
        self._grid, self._coordinator, self._terms = grid, coordinator, terms
        self.courier = Courier(grid, coordinator, timeout)
        self._asking = Asking(coordinator, self.courier)
        self._rotating = Rotating(terms.registries, coordinator, self.courier)
        self._busy: dict[str, Message] = {}
        known = coordinator.progress.waiting.items()
        self._waiting = {name: since for name, since in known if name in coordinator.members}
        self._shown = set(coordinator.progress.shown)  # whose update is part of a sum that was published, not proved
        self._since = self._latest = time.monotonic()
        self._pauses = Pauses(max(2 * _POLL_SECONDS, self._patience))

    def keep_busy(self, buffer: int) -> None:
        """Order work of whoever is free and can, if a buffer can come of it; and note what is done.

        Before that, a new registry is taken up.
        """
        self._forget(self._rotating.take_up())
        present = set(self.courier.present())
        if reason := overtaken(self._coordinator.chronicle, present, buffer):
            raise RunEnded(reason)
        self.courier.close_for(present - self._asking.exhausted)
        taken = self._busy.keys() | self._waiting.keys()
        free = self._following(sorted(present - taken - self._asking.exhausted))
        declined = self._asking.declined(free, self._terms.order, ())
        able = [name for name in free if name not in declined]
        if len(able) + len(self._following(taken)) >= buffer:
            works = {name: self._coordinator.order_ahead(name, self._terms.order) for name in able}
            asked = self.courier.messages(works, self.courier.clock.seconds)
            self._grid.push_messages(asked)
            self._busy.update(zip(works, asked, strict=True))  # whoever is able is present, and so has a node
        self._note_done()

    def _following(self, names: Iterable[str]) -> list[str]:
        """Those who need no receipt that lacks its quorum: they would decline, and what they trained is kept."""
        return [name for name in names if self._coordinator.chronicle.can_follow(name)]

    def _forget(self, names: Collection[str]) -> None:
        """What those trained whose keys are gone can be part of no sum, and nobody waits for it."""
        for name in names:
            self._busy.pop(name, None)
            self._waiting.pop(name, None)
            self._shown.discard(name)
        if names:
            self._save()

    def _note_done(self) -> None:
        replies = list(self._grid.pull_messages([message.metadata.message_id for message in self._busy.values()]))
        answered = {reply.metadata.reply_to_message_id for reply in replies}
        done = {name: asked for name, asked in self._busy.items() if asked.metadata.message_id in answered}
        answers = self.courier.answers(done.values(), replies)
        for name in done:
            del self._busy[name]  # also where the reply is of a node that it has left: it is asked again at its new one
            answer = answers.get(name, SILENT)
            if isinstance(answer, TrainedAhead):
                self._coordinator.reached(name, answer.head)
                self._waiting[name] = answer.trained_from
            elif isinstance(answer, Decline):
                self._asking.heard({name: answer.code})
        if done:
            self._save()

    def _save(self) -> None:
        self._coordinator.note(waiting=dict(self._waiting), shown=tuple(sorted(self._shown)))

    def require_hope(self, buffer: int, verified: int) -> None:
        """Raise RunEnded where no buffer can come together any more, or none has for too long."""
        self._asking.require(buffer, besides={*self._busy, *self._waiting})
        most = self.courier.clock.seconds if self._busy else self._terms.arrival
        if time.monotonic() - self._latest > most:
            raise RunEnded(
                (self._enough(buffer) and lacking(self._coordinator.chronicle))
                or f"no buffer of {buffer} came together in {most} seconds: start more clients, take a smaller buffer, "
                f"or give those that are there more budget, and start again. {verified} are verified."
            )

    def _enough(self, count: int) -> bool:
        """Whether enough for a buffer are there with budget left, as far as the server knows."""
        return len(set(self.courier.present()) - self._asking.exhausted) >= count

    def oldest(self, count: int) -> list[str]:
        """A buffer of the updates that wait longest, if enough of their clients are there; first those tried before.

        Last come those who let buffers down, however old their updates are: one client would keep all others waiting.
        """
        present, repetitions = set(self.courier.present()), self._coordinator.repetitions
        ranked = sorted(
            (name in repetitions.hopeless, self._pauses.failures(name), since, name)
            for name, since in self._waiting.items()
        )
        waiting = self._following(name for *_, name in ranked if name in present and self._pauses.over(name))
        again = repetitions.again([name for name in waiting if name in self._shown])
        if again is not None:
            return list(again)
        free = [name for name in waiting if name not in self._shown]
        for last in free[count - 1 :]:
            roster = [*free[: count - 1], last]
            if not repetitions.published(tuple(sorted(roster))):
                return roster
        if self._enough(count) and time.monotonic() - self._since > self._patience:
            self._renew(present)
        return []

    @property
    def _patience(self) -> float:
        return min(self._terms.patience, self._terms.arrival / 2)

    def _renew(self, names: Collection[str]) -> None:
        """Give up updates that no roster can be made with any more: their owners are asked for others.

        On disk before they are: a server that forgot it would make the old roster's sum once more, of other updates.
        """
        given_up = self._shown & set(names)
        for name in given_up:
            self._shown.discard(name)
            self._waiting.pop(name, None)
        if given_up:
            self._save()

    def step(self, names: Sequence[str]) -> RoundReport:
        """A verified round of updates that wait. Whoever could not take part is ordered again."""
        self.courier.clock.begin()
        report = gathered(self._coordinator, self.courier.exchange(self._coordinator.invite(names, None)))
        # Saved with the sum, before it is shown: a server that dies now knows whose updates are in it.
        shown = tuple(sorted(self._shown | set(report.participants)))
        self._coordinator.progress = replace(self._coordinator.progress, shown=shown)
        report = settled(self._coordinator, self.courier, report)
        if report.verified:
            self._renew(self._shown)  # what was shown in vain is spent with its round
            self._latest = time.monotonic()
            # At once: whoever leaves during an evaluation would take its confirmation along.
            self.courier.close_for(set(self.courier.present()) - self._asking.exhausted)
        elif self._coordinator.repetitions.published(report.participants):
            self._shown |= set(report.participants)
            self._since = time.monotonic()
        for name in report.declined:
            self._pauses.failed(name)
        if report.verified:
            self._pauses.forget()
        for name in names:  # whoever did not answer has its update still, and nobody else can take its place in a sum
            if report.verified or report.declined.get(name, SILENT.code) not in UNANSWERED:
                self._waiting.pop(name, None)
                self._shown.discard(name)
        self._save()
        return report


def _judged(result: RunResult, judge: Judge, report: RoundReport) -> MetricRecord | None:
    """Keep what a verified buffer came to; what ``evaluate_fn`` says of its model."""
    number, arrays = judge.coordinator.round, as_arrays(judge.coordinator)
    stalest = max(report.staleness.values())
    result.train_metrics_clientapp[number] = MetricRecord(
        {"participants": len(report.participants), "stalest": stalest}
    )
    found = judge(number, arrays, verified=True)
    if found is not None:
        result.evaluate_metrics_serverapp[number] = found
    return found
