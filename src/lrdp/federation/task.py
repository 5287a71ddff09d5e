"""What a client trains: its own model, data and loss, from its own code and never from the server."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from lrdp.errors import InvalidInput, Unsupported
from lrdp.federation.layout import Layout
from lrdp.integrity.fixed_point import Model
from lrdp.ledger import Policy, Request
from lrdp.training import (
    CheckedGradients,
    CheckedRecords,
    Constant,
    Dataset,
    Execution,
    Optimiser,
    PublicConstants,
    Sgd,
    Task,
    check_gradients,
    check_records,
    keep_freed_blocks,
    return_large_blocks,
)

Loss = Callable[..., Tensor]
Settings = Mapping[str, Any]
_DEFAULT_RATE = 0.1
_LOG = logging.getLogger("lrdp.client")


@dataclass(frozen=True, kw_only=True)
class LocalTask:
    """``dataset`` is called once, with the node's own settings; ``loss`` gives one value per example.

    ``loss`` is ``loss(model, batch)``, or one of torch's losses with a ``reduction``, as in ``F.cross_entropy``.
    """

    model: Callable[[], nn.Module]
    dataset: Callable[[Settings], Dataset]
    loss: Loss
    optimiser: Optimiser = field(default_factory=lambda: Sgd(rate=Constant(rate=_DEFAULT_RATE)))
    execution: Execution = field(default_factory=Execution)


@dataclass(frozen=True)
class _PerExample:
    """One of torch's losses on records ``(input, target)``."""

    loss: Loss

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, targets = batch
        return self.loss(model(inputs), targets, reduction="none")


class Workbench:
    """A task made ready: the model built and every record checked, once for all rounds."""

    def __init__(self, task: LocalTask, settings: Settings) -> None:
        self._task, self._settings = task, settings
        (keep_freed_blocks if task.execution.memory_limit is None else return_large_blocks)()
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
    def records(self) -> CheckedRecords:
        """What cannot be trained on is left out and logged here: a server is not told that it is there."""
        found = check_records(self._task.dataset(self._settings), self.loss)
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
            self._checked = check_gradients(rule.costliest, self._with(constants))
            self._rehearsed = policy.digest

    def task(self, request: Request, learning_rate: float | None, weights: Model) -> Task:
        """What one request asks for, in public values only, from these weights."""
        optimiser: Any = self._task.optimiser
        if learning_rate is not None:
            if not hasattr(optimiser, "rate"):
                raise Unsupported(f"{type(optimiser).__name__} has no rate that a server could set.")
            optimiser = replace(optimiser, rate=Constant(rate=learning_rate))
        constants = PublicConstants(
            clip_norm=request.clip_norm, optimiser=optimiser, first_step=request.round * request.steps
        )
        self.layout.write(weights, self.model)
        return self._with(constants)

    def _with(self, constants: PublicConstants) -> Task:
        return Task(
            model=self.model,
            dataset=self.records,
            loss=self.loss,
            constants=constants,
            execution=self._task.execution,
            checked=self._checked,
        )
