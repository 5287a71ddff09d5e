"""What a client trains: its own model, data and loss, from its own code and never from the server."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from torch import Tensor, nn

from lrdp.errors import InvalidInput, PolicyRefused, Unsupported
from lrdp.federation.wire.layout import Layout
from lrdp.integrity import Model
from lrdp.ledger import Policy, Refusal, Request
from lrdp.training import (
    CheckedGradients,
    CheckedRecords,
    Dataset,
    Execution,
    Optimiser,
    PublicConstants,
    Sgd,
    Task,
    check_dataset,
    check_gradients,
    check_records,
    check_room,
    keep_freed_blocks,
    return_large_blocks,
)

Loss = Callable[..., Tensor]
Settings = Mapping[str, Any]
DEFAULT_OPTIMISER: Final[Optimiser] = Sgd(lr=0.1)
DEFAULT_EXECUTION: Final = Execution()
_LOG = logging.getLogger("lrdp.client")


@dataclass(frozen=True, kw_only=True)
class LocalTask:
    """``dataset`` is called once, with the node's own settings; ``loss`` gives one value per example.

    ``loss`` is ``loss(model, batch)``, or one of torch's losses with a ``reduction``, as in ``F.cross_entropy``.
    ``probes`` are three or more public records, for a model that does not take made-up ones.
    """

    model: Callable[[], nn.Module]
    dataset: Callable[[Settings], Dataset]
    loss: Loss
    optimiser: Optimiser = DEFAULT_OPTIMISER
    execution: Execution = DEFAULT_EXECUTION
    probes: Sequence[Any] = ()


@dataclass(frozen=True)
class _PerExample:
    """One of torch's losses on records ``(input, target)``."""

    loss: Loss

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, targets = batch
        return self.loss(model(inputs), targets, reduction="none")


class Workbench:
    """A task made ready: the records counted, the model built and every record checked, once for all rounds."""

    def __init__(self, task: LocalTask, settings: Settings) -> None:
        self._task, self._settings = task, settings
        (keep_freed_blocks if task.execution.memory_limit is None else return_large_blocks)()
        self._sizes: tuple[str, int] | None = None
        self._rehearsed = ""
        self._checked: CheckedGradients | None = None

    @cached_property
    def model(self) -> nn.Module:
        return self._task.model()

    @cached_property
    def layout(self) -> Layout:
        return Layout.of_model(self.model)

    @cached_property
    def loss(self) -> Loss:
        reduces = "reduction" in inspect.signature(self._task.loss).parameters
        return _PerExample(self._task.loss) if reduces else self._task.loss

    @cached_property
    def _dataset(self) -> tuple[Dataset, int]:
        """The data set and its size, which is asked for once: what became of a record later must not show."""
        dataset = self._task.dataset(self._settings)
        check_dataset(dataset)
        return dataset, len(dataset)

    def set_up(self, policy: Policy) -> None:
        """See that the data set can be trained on as the policy says, also with one record more or fewer.

        Guarantees: the number of records is compared once, before anything is entered or answered. A policy that states
        another size later is refused, whatever the number is, until the client is started again.
        """
        rule = policy.mechanism.costliest
        if self._sizes is None:
            check_room(rule, self._dataset[1])
            self._sizes = rule.name, rule.dataset_size
        elif self._sizes != (rule.name, rule.dataset_size):
            raise PolicyRefused(
                f"{policy.source} has another sampling or data set size than when this client was started: start it "
                f"again. Nothing was trained and nothing was spent.",
                Refusal.DATASET_SIZE,
            )

    @cached_property
    def records(self) -> CheckedRecords:
        """What cannot be trained on is left out and logged here: a server is not told that it is there."""
        dataset, size = self._dataset
        found = replace(check_records(dataset, self.loss), size=size)
        try:
            found.demand()
        except InvalidInput as problem:
            _LOG.error("%s", problem)
        return found

    def rehearse(self, policy: Policy) -> None:
        """Refuse a model, loss or data set that cannot be trained as the policy says, before anything is charged."""
        if policy.digest != self._rehearsed:
            rule = policy.mechanism
            constants = PublicConstants(clip_norm=rule.clip_norm, optimiser=self._task.optimiser)
            self._checked = check_gradients(rule.costliest, self.with_constants(constants))
            self._rehearsed = policy.digest

    def task(self, request: Request, learning_rate: float | None, weights: Model) -> Task:
        """What one request asks for, in public values only, from these weights."""
        optimiser: Any = self._task.optimiser
        if learning_rate is not None:
            if not hasattr(optimiser, "lr"):
                raise Unsupported(f"{type(optimiser).__name__} has no lr that a server could set.")
            optimiser = replace(optimiser, lr=learning_rate)
        constants = PublicConstants(
            clip_norm=request.clip_norm, optimiser=optimiser, first_step=request.round * request.steps
        )
        self.layout.write(weights, self.model)
        return self.with_constants(constants)

    def with_constants(self, constants: PublicConstants) -> Task:
        """What is trained with these public values."""
        return Task(
            model=self.model,
            dataset=self.records,
            loss=self.loss,
            constants=constants,
            execution=self._task.execution,
            probes=self._task.probes,
            checked=self._checked,
        )
