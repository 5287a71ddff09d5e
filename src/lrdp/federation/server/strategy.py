"""Verified averaging as a Flower strategy: it stands where FedAvg stood.

Each round has three exchanges. A small one asks who *can* take part, before anybody is charged. *Work* goes out and
noised, committed updates come back; the sum is *announced* and signed tags come back. All tags together prove the sum:
they travel with the next round's question, or in a small exchange of their own where a client that was absent must be
shown that the others accepted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any, Final

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from lrdp import limits
from lrdp.errors import InvalidInput, Malformed
from lrdp.federation.server.asking import Asking
from lrdp.federation.server.convening import Convener
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.options import refuse_options
from lrdp.federation.server.resuming import opened, terms_of
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
from lrdp.federation.server.settling import Settle, gathered, settled
from lrdp.federation.server.sole_server import alone_in
from lrdp.federation.server.terms import EvaluateFunction, Terms, as_arrays
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import Counted
from lrdp.federation.wire.shares import read_share
from lrdp.screen import visible

_LOG: Final = logging.getLogger("lrdp.server")


def _put(records: dict[int, MetricRecord], number: int, found: MetricRecord | None) -> None:
    if found is not None:
        records[number] = found


class VerifiedAverage(Strategy):
    """The uniform average of noised updates, in rounds that every participant verifies.

    ``observers`` are told of each attempt when it is over: `lrdp.federation.server.observers` has some for dashboards.
    ``settle`` is what is done with the updates of a round. Flower's ``options`` for other strategies are refused, each
    with its reason or what to use instead.

    >>> from tempfile import TemporaryDirectory
    >>> import torch
    >>> from lrdp.accounting import Budget, Training
    >>> from lrdp.federation import InProcessGrid, Node, found, private_client_app
    >>> from lrdp.training import TensorRecords
    >>> budget, hospitals, reports = Budget(epsilon=8.0, delta=1e-4), ["a", "b", "c"], []
    >>> training = Training(dataset_size=40, batch_size=8, rounds=2, local_steps=1, budget=budget)
    >>> with TemporaryDirectory() as folder:
    ...     ours = found(Path(folder) / "consortium", dict.fromkeys(hospitals, training))
    ...     app = private_client_app(
    ...         policy=folder + "/consortium/clients/{name}/policy.toml",
    ...         model=lambda: torch.nn.Linear(4, 2),
    ...         dataset=lambda settings: TensorRecords(torch.rand(50, 4), torch.arange(50) % 2),
    ...         loss=torch.nn.functional.cross_entropy,
    ...     )
    ...     grid = InProcessGrid({2 + place: Node(app, {"name": name}) for place, name in enumerate(hospitals)})
    ...     terms = Terms(identity=ours.server_identity(), registry=ours.registry(), folder=ours.server_folder)
    ...     result = VerifiedAverage(terms, reports.append).start(
    ...         grid, ArrayRecord(torch.nn.Linear(4, 2).state_dict()), num_rounds=1
    ...     )
    >>> reports[0].verified, reports[0].participants, list(result.arrays)
    (True, ('a', 'b', 'c'), ['weight', 'bias'])
    """

    def __init__(self, terms: Terms, *observers: ObserveRound, settle: Settle = settled, **options: Any) -> None:
        refuse_options("VerifiedAverage", options)
        self._terms, self._observers, self._settle = terms, observers, settle
        self._running: Convener | None = None
        self._asked: list[Message] = []
        self._declined: dict[str, str] = {}
        self._report = RoundReport(model=0)

    @property
    def _run(self) -> Convener:
        if self._running is None:
            raise InvalidInput("there is no session yet: call start().")
        return self._running

    @property
    def coordinator(self) -> Coordinator:
        """The session that runs, or ran last."""
        return self._run.coordinator

    @classmethod
    def resume(cls, folder: Path, *observers: ObserveRound) -> VerifiedAverage:
        """The session in a server's folder, with its key, registry and order: ``start(grid)`` goes on in it.

        The same script with the same folder goes on as well. For other terms, replace some of ``terms_of(folder)``,
        and also for a ``score`` of one's own, which is code and not in the folder.
        """
        return cls(terms_of(folder), *observers)

    def start(  # noqa: PLR0913 — Flower's own signature
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = ROUND_SECONDS,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> RunResult:
        """Go on until the session has ``num_rounds`` attempts at a round; what comes back is the last verified model.

        A round takes at most ``timeout`` seconds from the moment that work is sent, half of which are for training.
        A session that lies in the folder goes on, and ``initial_arrays`` begin one where none does. Where too few are
        left to make a round, the run ends early with the last verified model, and the result says why.

        Raises:
            NoVerifiedRound: if there is no verified round, and so no model.
            InvalidInput: if ``Terms.choose`` picks more than the scheme permits; the session can go on afterwards.
                Or if another server is at work in the folder: nothing was started.
        """
        limits.whole("num_rounds", num_rounds, 0, COUNTED)
        order = self._terms.order.with_config(train_config or {})
        with alone_in(self._terms.folder):
            coordinator = opened(self._terms, initial_arrays)
            courier = Courier(grid, coordinator, timeout)
            rotating = Rotating(self._terms.registries, coordinator, courier)
            asking = Asking(coordinator, courier)
            self._running = run = Convener(self._terms, coordinator, courier, asking, order, rotating)
            judge = Judge(coordinator, evaluate_fn, self._terms.score)
            coordinator.note(order=order.encode().hex())
            self.summary()
            tell_if_complete(coordinator, coordinator.progress.tried, num_rounds)
            result = RunResult(arrays=as_arrays(coordinator))
            judge.at_the_start(coordinator.progress.tried, result)
            try:
                while coordinator.progress.tried < num_rounds:
                    self._attempt(grid, judge, result)
            except RunEnded as ended:
                result.reason = str(ended)
            return closed(coordinator, run.courier, result)

    def _attempt(self, grid: Grid, judge: Judge, result: RunResult) -> None:
        """What Flower does in a round: train, count, evaluate."""
        number, began, none = self.coordinator.progress.tried + 1, time.monotonic(), ConfigRecord()

        def exchanged(asked: Iterable[Message]) -> Iterable[Message]:
            messages = list(asked)  # which are worth an answer for as long as it is waited for
            return grid.send_and_receive(messages, timeout=messages[0].metadata.ttl) if messages else []

        work = self.configure_train(number, result.arrays, none, grid)
        arrays, metrics = self.aggregate_train(number, exchanged(work))
        result.arrays = arrays or result.arrays
        _put(result.train_metrics_clientapp, number, metrics)
        counts = self.configure_evaluate(number, result.arrays, none, grid)
        _put(result.evaluate_metrics_clientapp, number, self.aggregate_evaluate(number, exchanged(counts)))
        judged = None
        try:
            judged = judge(number, result.arrays, verified=self._report.verified)
            _put(result.evaluate_metrics_serverapp, number, judged)
        finally:  # the attempt was made, whatever an evaluation comes to
            seconds, public = round(time.monotonic() - began, 3), public_metrics(judged)
            told(self.coordinator, self._observers, replace(self._report, seconds=seconds, metrics=public))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Who takes part, and what each is sent; nobody, where too few can."""
        names, self._declined = self._run.roster()
        invited = self.coordinator.invite(names, self._run.order) if names else {}
        self._asked = self._run.courier.messages(invited, self._run.courier.clock.begin())
        return self._asked

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Admit what holds, publish the sum, gather the tags; the model moves only if all are there."""
        self._report = report = self._settled(replies)
        if report.verified:  # at once: whoever leaves during an evaluation would take its confirmation along
            self._run.courier.close_for(self._run.present())
        metrics = MetricRecord({"participants": len(report.participants), "declined": len(report.declined)})
        return as_arrays(self.coordinator) if report.verified else None, metrics

    def _settled(self, replies: Iterable[Message]) -> RoundReport:
        run, before = self._run, self._declined
        if not self._asked:
            run.coordinator.give_up()
            problem = f"too few can take part: a round needs {run.coordinator.least}, and nobody was charged"
            return RoundReport(model=run.coordinator.round, declined=before, problem=problem)
        report = gathered(run.coordinator, run.courier.answers(self._asked, replies))
        self._run.asking.heard(dict(report.declined))
        return self._settle(run.coordinator, run.courier, replace(report, declined={**before, **report.declined}))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody, unless the terms ask for a noised and charged count; evaluate on public data with ``evaluate_fn``."""
        ended = self.coordinator.history
        order = Order(steps=1, metrics=self._terms.metrics)
        names = ended[-1].names if ended and order.metrics else ()
        counts = {name: self.coordinator.order_count(name, order) for name in names}
        self._asked = self._run.courier.messages(counts, self._run.courier.clock.begin())
        return self._asked

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean of the noised counts that came; what is none of one client takes nobody else's along."""
        values = []
        for name, answer in self._run.courier.answers(self._asked, replies).items():
            if isinstance(answer, Counted):
                self.coordinator.reached(name, answer.head)
                try:
                    values.append(read_share(answer.share))
                except Malformed as problem:
                    _LOG.warning("the count of %s was not taken: %s", name, visible(str(problem)))
        mean = fsum(value / len(values) for value in values)  # the sum of two may have no double
        return MetricRecord({"accuracy": mean, "clients": len(values)}) if values else None

    def summary(self) -> None:
        """Log what is asked for."""
        _LOG.info("verified averaging · order %s", self._run.order)
