"""Verified averaging as a Flower strategy: it stands where FedAvg stood.

Each round has two exchanges. *Work* goes out and noised, committed updates come back; the sum is *announced* and signed
tags come back. All tags together prove the sum: they travel with the next round's Work, or in a small exchange of their
own where a client that was absent must be shown that the others accepted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, Final

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from lrdp.errors import InvalidInput
from lrdp.federation.coordinator import Coordinator
from lrdp.federation.courier import Courier
from lrdp.federation.measuring import as_accuracy
from lrdp.federation.messages import Done
from lrdp.federation.options import refuse_options
from lrdp.federation.orders import Order
from lrdp.federation.progress import Observe, silence
from lrdp.federation.rounds import EXHAUSTED, gathered, settled
from lrdp.federation.terms import EvaluateFunction, Terms, as_arrays

_LOG: Final = logging.getLogger("lrdp.server")
_POLL_SECONDS: Final = 0.5


class VerifiedAverage(Strategy):
    """The uniform average of noised updates, in rounds that every participant verifies.

    Flower's ``options`` for other strategies are refused, each with its reason or what to use instead.
    """

    def __init__(self, terms: Terms, observe: Observe = silence, **options: Any) -> None:
        refuse_options("VerifiedAverage", options)
        self._terms, self._observe = terms, observe
        self._coordinator: Any = None
        self._courier: Any = None
        self._asked: list[Message] = []
        self._exhausted: set[str] = set()

    @property
    def coordinator(self) -> Coordinator:
        """The session that runs, or ran last."""
        if self._coordinator is None:
            raise InvalidInput("there is no session yet: call start().")
        session: Coordinator = self._coordinator
        return session

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
        self._coordinator = self._terms.open(initial_arrays)
        self._courier = Courier(grid, self._coordinator, timeout)
        self._order = self._terms.order.with_config(train_config or {})
        result = super().start(grid, initial_arrays, num_rounds, timeout, None, evaluate_config, evaluate_fn)
        self._courier.close()
        self._coordinator.write_down()
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Who takes part, and what each is sent."""
        names = self._wait_for_clients()
        self._asked = self._courier.messages(self._coordinator.invite(names, self._order))
        return self._asked

    def _wait_for_clients(self) -> list[str]:
        began = time.monotonic()
        deadline = began + self._courier.timeout
        while True:
            names = [name for name in self._courier.present() if name not in self._exhausted]
            chosen = self._chosen(names, time.monotonic() - began)
            if len(chosen) >= self._coordinator.least:
                if self._coordinator.must_close(chosen):
                    self._courier.close()
                able = [name for name in chosen if self._coordinator.can_follow(name)]
                if len(able) >= self._coordinator.least:
                    return able
            if time.monotonic() > deadline:
                raise InvalidInput(
                    f"{len(names)} clients are there that have budget left and can follow, {self._coordinator.least} "
                    f"make a round: start more SuperNodes, or give those that are there more budget."
                )
            time.sleep(_POLL_SECONDS)

    def _chosen(self, names: Sequence[str], waited: float) -> Sequence[str]:
        """A roster that is tried again; nobody, while one is waited for; or those whom the terms choose."""
        repetitions = self.coordinator.repetitions
        again = repetitions.again(names)
        if again is not None:
            return again
        if repetitions.unproved and waited < min(self._terms.patience, self._courier.timeout / 2):
            return ()
        able = [name for name in names if name not in repetitions.hopeless]
        return self._terms.choose(self.coordinator.round, able) if len(able) >= self.coordinator.least else ()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Admit what holds, publish the sum, gather the tags; the model moves only if all are there."""
        report = gathered(self._coordinator, self._courier.answers(self._asked, replies))
        self._exhausted |= {name for name, code in report.declined.items() if code in EXHAUSTED}
        report = settled(self._coordinator, self._courier, report)
        self._observe(report)
        _LOG.info(report.line)
        metrics = MetricRecord({"participants": len(report.participants), "declined": len(report.declined)})
        if not report.verified:
            return None, metrics
        return as_arrays(self._coordinator), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody, unless the terms ask for a noised and charged count; evaluate on public data with ``evaluate_fn``."""
        ended = self._coordinator.history
        order = Order(steps=1, metrics=self._terms.metrics)
        names = ended[-1].names if ended and order.metrics else ()
        self._asked = self._courier.messages({name: self._coordinator.order_ahead(name, order) for name in names})
        return self._asked

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean of the noised counts that came."""
        values = []
        for name, answer in self._courier.answers(self._asked, replies).items():
            if isinstance(answer, Done):
                self._coordinator.reached(name, answer)
                values.append(as_accuracy(answer.values or b""))
        return MetricRecord({"accuracy": fmean(values), "clients": len(values)}) if values else None

    def summary(self) -> None:
        """Log what is asked for."""
        _LOG.info("verified averaging · order %s", self._order.encode().decode())
