"""Buffered asynchronous averaging: the server steps when enough updates are in, however old the model they came from.

Clients train whenever they are there and keep their noised update; nobody waits for the slowest. Once a buffer is full,
its owners make a round of it: each commits to its update at the *current* position and verifies the sum, exactly as in
a synchronous round. So integrity holds buffer by buffer, and asynchrony costs one small exchange.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from typing import Any, Final

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.options import refuse_options
from lrdp.federation.server.round_report import Observe, RoundReport, silence
from lrdp.federation.server.settling import EXHAUSTED, gathered, settled
from lrdp.federation.server.terms import EvaluateFunction, Terms, as_arrays
from lrdp.federation.wire.questions import Decline, TrainedAhead

_LOG: Final = logging.getLogger("lrdp.server")
_POLL_SECONDS: Final = 0.2


class BufferedAverage:
    """``buffer`` updates make a step; how stale each was is in the reports."""

    def __init__(self, terms: Terms, *, buffer: int, observe: Observe = silence, **options: Any) -> None:
        refuse_options("BufferedAverage", options)
        limits.whole("buffer", buffer, 3, "of two, each could subtract itself from the sum")
        self._terms, self._buffer, self._observe = terms, buffer, observe

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """Run until ``num_rounds`` buffers are verified; raises InvalidInput after ``timeout`` seconds without one."""
        limits.whole("buffer", self._buffer, self._terms.least, "fewer make no round of this session")
        coordinator = self._terms.open(initial_arrays)
        workshop = Workshop(grid, coordinator, self._terms, timeout)
        result, latest = Result(), time.monotonic()
        while coordinator.round < num_rounds:
            workshop.keep_busy()
            full = workshop.oldest(self._buffer)
            if full:
                report = workshop.step(full)
                self._observe(report)
                _LOG.info(report.line)
                if report.verified:
                    latest = time.monotonic()
                    _record(result, coordinator, report, evaluate_fn)
            elif time.monotonic() - latest > timeout:
                raise InvalidInput(
                    f"no buffer of {self._buffer} came together in {timeout} seconds: start more clients, take a "
                    f"smaller buffer, or give those that are there more budget. {coordinator.round} are verified."
                )
            else:
                time.sleep(_POLL_SECONDS)
        workshop.close()
        return result


class Workshop:
    """Who trains, whose update waits, and who is spent."""

    def __init__(self, grid: Grid, coordinator: Coordinator, terms: Terms, timeout: float) -> None:
        self._grid, self._coordinator, self._terms = grid, coordinator, terms
        self._courier = Courier(grid, coordinator, timeout)
        self._busy: dict[str, Message] = {}
        self._waiting: dict[str, int] = {}
        self._shown: set[str] = set()  # whose waiting update is part of a sum that was published and not proved
        self._since = time.monotonic()
        self._exhausted: set[str] = set()

    def keep_busy(self) -> None:
        """Order work of whoever is free, and note what is done."""
        present = set(self._courier.present())
        free = sorted(present - self._busy.keys() - self._waiting.keys() - self._exhausted)
        if self._coordinator.must_close(free):
            self._courier.close()
        works = {name: self._coordinator.order_ahead(name, self._terms.order) for name in free}
        asked = self._courier.messages(works)
        self._grid.push_messages(asked)
        self._busy.update(zip(works, asked, strict=True))  # whoever is free is present, and so has a node
        replies = list(self._grid.pull_messages([message.metadata.message_id for message in self._busy.values()]))
        answered = {reply.metadata.reply_to_message_id for reply in replies}
        done = [message for message in self._busy.values() if message.metadata.message_id in answered]
        for name, answer in self._courier.answers(done, replies).items():
            del self._busy[name]
            if isinstance(answer, TrainedAhead):
                self._coordinator.reached(name, answer.head)
                self._waiting[name] = answer.trained_from
            elif isinstance(answer, Decline) and answer.code in EXHAUSTED:
                self._exhausted.add(name)

    def oldest(self, count: int) -> list[str]:
        """The updates that wait longest, if there are so many of clients that are there; first those tried before."""
        present = set(self._courier.present())
        waiting = [name for _, name in sorted((since, name) for name, since in self._waiting.items())]
        waiting = [name for name in waiting if name in present]
        repetitions = self._coordinator.repetitions
        again = repetitions.again([name for name in waiting if name in self._shown])
        if again is not None:
            return list(again)
        free = [name for name in waiting if name not in self._shown]
        for last in free[count - 1 :]:
            roster = [*free[: count - 1], last]
            if not repetitions.published(tuple(sorted(roster))):
                return roster
        if len(present - self._exhausted) >= count and time.monotonic() - self._since > self._patience:
            self._renew(present)
        return []

    @property
    def _patience(self) -> float:
        return min(self._terms.patience, self._courier.timeout / 2)

    def _renew(self, names: Collection[str]) -> None:
        """Give up updates that no roster can be made with any more: their owners are asked for others."""
        for name in self._shown & set(names):
            self._shown.discard(name)
            self._waiting.pop(name, None)

    def step(self, names: Sequence[str]) -> RoundReport:
        """A verified round of updates that wait. Whoever could not take part is ordered anew."""
        if self._coordinator.must_close(names):
            self._courier.close()
        report = gathered(self._coordinator, self._courier.exchange(self._coordinator.invite(names, None)))
        report = settled(self._coordinator, self._courier, report)
        if report.verified:
            self._renew(self._shown)  # what was shown in vain is spent with its round
        elif self._coordinator.repetitions.published(report.participants):
            self._shown |= set(report.participants)
            self._since = time.monotonic()
        for name in names:
            if report.verified or name in report.declined:
                self._waiting.pop(name, None)
                self._shown.discard(name)
        return report

    def close(self) -> None:
        """The end of the session."""
        self._courier.close()
        self._coordinator.write_down()


def _record(
    result: Result, coordinator: Coordinator, report: RoundReport, evaluate_fn: EvaluateFunction | None
) -> None:
    result.arrays = as_arrays(coordinator)
    stalest = max(report.staleness.values())
    result.train_metrics_clientapp[coordinator.round] = MetricRecord(
        {"participants": len(report.participants), "stalest": stalest}
    )
    measured = evaluate_fn(coordinator.round, result.arrays) if evaluate_fn else None
    if measured is not None:
        result.evaluate_metrics_serverapp[coordinator.round] = measured
