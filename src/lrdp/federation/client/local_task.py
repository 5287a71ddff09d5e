"""What a client trains: its own model, data and loss, from its own code and never from the server."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from torch import Tensor, nn

from lrdp import limits
from lrdp.errors import InvalidInput, PolicyRefused, Unsupported
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.orders import Order
from lrdp.integrity import Model
from lrdp.ledger import Clipped, Policy, Refusal, Request
from lrdp.training import (
    CheckedGradients,
    CheckedRecords,
    Clipping,
    Dataset,
    Execution,
    FlatClipping,
    GroupedByUnit,
    Optimiser,
    PerUnit,
    PublicConstants,
    Sgd,
    Task,
    as_loss,
    as_optimiser,
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
DEFAULT_CLIPPING: Final[Clipping] = FlatClipping()
_LOG = logging.getLogger("lrdp.client")


@dataclass(frozen=True, kw_only=True)
class LocalTask:
    """``dataset`` is called once, with the node's own settings; ``loss`` gives one value per example.

    ``loss`` is ``loss(model, batch)``, or one of torch's, as ``F.cross_entropy`` or ``nn.MSELoss()``. ``optimiser`` is
    as ``Sgd(lr=0.1)``, or what makes one of torch's, as ``functools.partial(torch.optim.SGD, lr=0.1)``. ``probes`` are
    three or more public records, for a model that does not take made-up ones. ``units`` says whose each row of the data
    set is, as in ``lambda rows: rows.patients``, where the policy clips units. ``clipping`` and ``normaliser`` are
    public constants of every step; a server may order another normaliser.

    >>> import torch
    >>> from lrdp.training import TensorRecords
    >>> task = LocalTask(
    ...     model=lambda: nn.Linear(4, 2),
    ...     dataset=lambda settings: TensorRecords(torch.rand(50, 4), torch.arange(50) % 2),
    ...     loss=nn.functional.cross_entropy,
    ... )
    >>> task.constants(clip_norm=1.0).optimiser.lr
    0.1
    """

    model: Callable[[], nn.Module]
    dataset: Callable[[Settings], Dataset]
    loss: Loss
    optimiser: Optimiser = DEFAULT_OPTIMISER
    execution: Execution = DEFAULT_EXECUTION
    probes: Sequence[Any] = ()
    units: Callable[[Any], Iterable[Any]] | None = None
    clipping: Clipping = DEFAULT_CLIPPING
    normaliser: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module) or not callable(self.model):
            raise InvalidInput(
                f"model must be what makes a model, as in model=Net or model=lambda: Net(10), got a "
                f"{type(self.model).__name__}: each client makes its own."
            )
        if not callable(self.dataset):
            raise InvalidInput(
                f"dataset must be a function of a node's settings, as in dataset=lambda settings: …, got a "
                f"{type(self.dataset).__name__}: each client makes its own."
            )
        _demand_one_argument(self.dataset)
        limits.keep(self, loss=as_loss(self.loss), optimiser=as_optimiser(self.optimiser))

    def constants(self, clip_norm: float) -> PublicConstants:
        """Its own public values, with this clip norm."""
        return PublicConstants(
            clip_norm=clip_norm, optimiser=self.optimiser, clipping=self.clipping, normaliser=self.normaliser
        )

    def grouped(self, dataset: Dataset, most_rows: int) -> Grouped:
        """The data set, loss and probes to train with: by unit where the task says whose each row is."""
        if self.units is None:
            return Grouped(dataset, self.loss, self.probes)
        public = self.probes and GroupedByUnit(self.probes, units=range(len(self.probes)), most_rows=most_rows)
        rows = GroupedByUnit(dataset, units=self.units(dataset), most_rows=most_rows)
        return Grouped(rows, PerUnit(self.loss), [public[number] for number in range(len(public))])


def _demand_one_argument(dataset: Callable[..., Any]) -> None:
    """Refuse at once, and not in a client's first message, what cannot be called with a node's settings alone."""
    try:
        taken = inspect.signature(dataset)
    except (TypeError, ValueError):  # written in C, as some built-in types are: calling it will tell
        return
    try:
        taken.bind({})
    except TypeError:
        name = getattr(dataset, "__name__", type(dataset).__name__)
        raise InvalidInput(
            f"dataset is called with one argument, a node's settings, and {name}{taken} cannot be: wrap it, as in "
            f"dataset=lambda settings: {name}(settings['partition-id'], …); nothing was started."
        ) from None


class Grouped(NamedTuple):
    """What is drawn and clipped as one record, rows or units, and what fits it."""

    dataset: Dataset
    loss: Loss
    probes: Sequence[Any]


def prepare_process(task: LocalTask) -> None:
    """What a process that will train this task does first: it says what becomes of freed memory.

    That concerns the whole process, so its entry point says it, and no value that is made there.
    """
    (keep_freed_blocks if task.execution.memory_limit is None else return_large_blocks)()


class Workbench:
    """A task made ready: the records counted, the model built and every record checked, once for all rounds."""

    def __init__(self, task: LocalTask, settings: Settings) -> None:
        self._task, self._settings = task, settings
        self._stated: tuple[Any, ...] | None = None
        self._grouped: Grouped | None = None
        self._size = 0
        self._rehearsed = ""
        self._checked: CheckedGradients | None = None
        self._most_rows: int | None = None

    @cached_property
    def model(self) -> nn.Module:
        return self._task.model()

    @cached_property
    def layout(self) -> Layout:
        return Layout.of_model(self.model)

    def set_up(self, policy: Policy) -> None:
        """See that the data set can be trained on as the policy says, even with one unit more or fewer.

        Guarantees: the number of records is compared once, before anything is entered or answered. A policy that states
        another size later is refused, whatever the number is, until the client is started again. A record here is what
        the policy clips as one.
        """
        rule, identity = policy.mechanism.costliest, policy.identity
        stated = rule.name, rule.dataset_size, identity.clipped, identity.max_rows_per_unit
        if self._stated is None:
            _demand_units(self._task, policy)
            _demand_room(policy, self._counted(identity.max_rows_per_unit))
            self._stated = stated
        elif self._stated != stated:
            raise PolicyRefused(
                f"{policy.source} has another sampling, data set size or unit than when this client was started: start "
                f"it again. Nothing was trained and nothing was spent.",
                Refusal.DATASET_SIZE,
            )

    def _counted(self, most_rows: int) -> int:
        """The number of records, which is asked for once: a record that comes or goes later must not show."""
        if self._grouped is None:
            dataset = self._task.dataset(self._settings)
            check_dataset(dataset)
            self._grouped = self._task.grouped(dataset, most_rows)
            self._size = len(self._grouped.dataset)
        return self._size

    @property
    def _trained(self) -> Grouped:
        if self._grouped is None:
            raise InvalidInput("a client is set up with its policy before it trains: nothing was trained.")
        return self._grouped

    @cached_property
    def records(self) -> CheckedRecords:
        """Records that cannot be trained on are left out and logged here: a server is not told of them."""
        dataset, loss, _ = self._trained
        found = replace(check_records(dataset, loss), size=self._size)
        try:
            found.demand()
        except InvalidInput as problem:
            _LOG.error("%s", problem)
        return found

    def rehearse(self, policy: Policy) -> None:
        """Refuse a model, loss or data set that cannot be trained as the policy says, before anything is charged."""
        if policy.digest != self._rehearsed:
            rule = policy.mechanism
            constants = self._task.constants(rule.clip_norm)
            self._most_rows = policy.micro_batch
            self._checked = check_gradients(rule.costliest, self.with_constants(constants))
            self._rehearsed = policy.digest

    def task(self, request: Request, order: Order, weights: Model) -> Task:
        """What one request asks for, in public values only, from these weights."""
        optimiser: Any = self._task.optimiser
        if order.learning_rate is not None:
            if not hasattr(optimiser, "lr"):
                raise Unsupported(f"{type(optimiser).__name__} has no lr that a server could set.")
            optimiser = replace(optimiser, lr=order.learning_rate)
        own = self._task.constants(request.clip_norm)
        constants = replace(
            own,
            optimiser=optimiser,
            first_step=request.round * request.steps,
            normaliser=own.normaliser if order.normaliser is None else order.normaliser,
        )
        self.layout.write(weights, self.model)
        return self.with_constants(constants)

    def with_constants(self, constants: PublicConstants) -> Task:
        """What is trained with these public values, in passes of as many rows as the policy allows."""
        execution = self._task.execution
        if self._most_rows is not None:
            execution = execution.in_passes(self._most_rows)
        return Task(
            model=self.model,
            dataset=self.records,
            loss=self._trained.loss,
            constants=constants,
            execution=execution,
            probes=self._trained.probes,
            checked=self._checked,
        )


def _demand_room(policy: Policy, records: int) -> None:
    """Refuse a data set of another size than the policy states, and say where it does."""
    rule = policy.mechanism.costliest
    try:
        check_room(rule, records, policy.identity.records_per_unit)
    except InvalidInput as problem:
        stated = rule.bounds["dataset_size"].key
        where = policy.where(f"mechanism.{stated}")
        raise InvalidInput(f"{problem} The policy states it as {stated}, {where}. Nothing was trained.") from None


def _demand_units(task: LocalTask, policy: Policy) -> None:
    """Refuse a task that takes something else for a record than the policy does."""
    by_unit = policy.identity.clipped is Clipped.UNITS
    if by_unit is (task.units is not None):
        return
    wanted = "say whose each row is, LocalTask(units=…)" if by_unit else "leave units out of the task"
    raise InvalidInput(
        f"{policy.where('identity.clipped')} clips {policy.identity.clipped.value}, and the task makes records of "
        f"{'rows' if by_unit else 'units'}: {wanted}, or open a ledger for the other. Nothing was trained."
    )
