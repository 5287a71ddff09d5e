"""Verified averaging as a Flower strategy: it stands where FedAvg stood.

Each round has two exchanges. *Work* goes out and noised, committed updates come back; the sum is *announced* and signed
tags come back. All tags together prove the sum: they travel with the next round's Work, or in a small exchange of their
own where a client that was absent must be shown that the others accepted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from lrdp.errors import InvalidInput
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.options import refuse_options
from lrdp.federation.server.round_report import Observe, silence
from lrdp.federation.server.settling import EXHAUSTED, Settle, gathered, settled
from lrdp.federation.server.terms import EvaluateFunction, Terms, as_arrays
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import Counted
from lrdp.federation.wire.shares import read_share

_LOG: Final = logging.getLogger("lrdp.server")
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True)
class _Run:
    """One session: who coordinates it, who brings its messages, and what is asked."""

    coordinator: Coordinator
    courier: Courier
    order: Order


class VerifiedAverage(Strategy):
    """The uniform average of noised updates, in rounds that every participant verifies.

    ``settle`` is what is done with the updates of a round. Flower's ``options`` for other strategies are refused, each
    with its reason or what to use instead.
    """

    def __init__(self, terms: Terms, observe: Observe = silence, *, settle: Settle = settled, **options: Any) -> None:
        refuse_options("VerifiedAverage", options)
        self._terms, self._observe, self._settle = terms, observe, settle
        self._running: _Run | None = None
        self._asked: list[Message] = []
        self._exhausted: set[str] = set()

    @property
    def _run(self) -> _Run:
        if self._running is None:
            raise InvalidInput("there is no session yet: call start().")
        return self._running

    @property
    def coordinator(self) -> Coordinator:
        """The session that runs, or ran last."""
        return self._run.coordinator

    def start(  # noqa: PLR0913 — Flower's own signature
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """Flower's loop; then one small exchange, so that the last round is accepted too."""
        coordinator = self._terms.open(initial_arrays)
        order = self._terms.order.with_config(train_config or {})
        self._running = run = _Run(coordinator, Courier(grid, coordinator, timeout), order)
        result = super().start(grid, initial_arrays, num_rounds, timeout, None, evaluate_config, evaluate_fn)
        run.courier.close()
        coordinator.write_down()
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Who takes part, and what each is sent."""
        names = self._wait_for_clients()
        self._asked = self._run.courier.messages(self.coordinator.invite(names, self._run.order))
        return self._asked

    def _wait_for_clients(self) -> list[str]:
        began, coordinator, courier = time.monotonic(), self.coordinator, self._run.courier
        deadline = began + courier.timeout
        while True:
            names = [name for name in courier.present() if name not in self._exhausted]
            chosen = self._chosen(names, time.monotonic() - began)
            if len(chosen) >= coordinator.least:
                if coordinator.must_close(chosen):
                    courier.close()
                able = [name for name in chosen if coordinator.can_follow(name)]
                if len(able) >= coordinator.least:
                    return able
            if time.monotonic() > deadline:
                raise InvalidInput(
                    f"{len(names)} clients are there that have budget left and can follow, {coordinator.least} "
                    f"make a round: start more SuperNodes, or give those that are there more budget."
                )
            time.sleep(_POLL_SECONDS)

    def _chosen(self, names: Sequence[str], waited: float) -> Sequence[str]:
        """A roster that is tried again; nobody, while one is waited for; or those whom the terms choose."""
        repetitions = self.coordinator.repetitions
        again = repetitions.again(names)
        if again is not None:
            return again
        if repetitions.unproved and waited < min(self._terms.patience, self._run.courier.timeout / 2):
            return ()
        able = [name for name in names if name not in repetitions.hopeless]
        return self._terms.choose(self.coordinator.round, able) if len(able) >= self.coordinator.least else ()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Admit what holds, publish the sum, gather the tags; the model moves only if all are there."""
        run = self._run
        report = gathered(run.coordinator, run.courier.answers(self._asked, replies))
        self._exhausted |= {name for name, code in report.declined.items() if code in EXHAUSTED}
        report = self._settle(run.coordinator, run.courier, report)
        self._observe(report)
        _LOG.info(report.line)
        metrics = MetricRecord({"participants": len(report.participants), "declined": len(report.declined)})
        if not report.verified:
            return None, metrics
        return as_arrays(run.coordinator), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody, unless the terms ask for a noised and charged count; evaluate on public data with ``evaluate_fn``."""
        ended = self.coordinator.history
        order = Order(steps=1, metrics=self._terms.metrics)
        names = ended[-1].names if ended and order.metrics else ()
        self._asked = self._run.courier.messages({name: self.coordinator.order_count(name, order) for name in names})
        return self._asked

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean of the noised counts that came."""
        values = []
        for name, answer in self._run.courier.answers(self._asked, replies).items():
            if isinstance(answer, Counted):
                self.coordinator.reached(name, answer.head)
                values.append(read_share(answer.share))
        return MetricRecord({"accuracy": fmean(values), "clients": len(values)}) if values else None

    def summary(self) -> None:
        """Log what is asked for."""
        _LOG.info("verified averaging · order %s", self._run.order)
