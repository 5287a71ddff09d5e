"""What a server brings to a session, and how it opens one."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from flwr.app import Array, ArrayRecord, MetricRecord

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.federation.server.archive import Archive
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.keeping import Keeping
from lrdp.federation.server.schemes import Conduct, RoundScheme, SketchRounds
from lrdp.federation.wire.averaging import Averaging
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import Hello
from lrdp.federation.wire.signing import run_identifier, sign_session
from lrdp.integrity import (
    HASH_SIZE,
    FixedPoint,
    Identity,
    Model,
    Parameters,
    Registry,
    RegistryShelf,
    Session,
    majority,
    server,
)
from lrdp.ledger import Retries

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]
"""Flower's evaluation by the server, on public data."""
Score = Callable[[MetricRecord], float | None]
"""How good a model is by the metrics of ``evaluate_fn``: the highest is the best. None where they do not say."""
Choose = Callable[[int, Sequence[str]], Sequence[str]]


_MADE_WITH: Final[Mapping[str, tuple[type, str]]] = {
    "identity": (Identity, "lrdp.integrity.load_identity(path)"),
    "registry": (Registry, "lrdp.integrity.read_registry(path.read_text())"),
    "folder": (Path, "pathlib.Path(text)"),
}


def everybody(_round: int, names: Sequence[str]) -> Sequence[str]:
    """Full participation.

    >>> everybody(3, ["a", "b"])
    ['a', 'b']
    """
    return names


def accuracy_or_loss(metrics: MetricRecord) -> float | None:
    """The accuracy if there is one, otherwise minus the loss; what is not a finite number is not a score."""
    for name, sign in (("accuracy", 1.0), ("loss", -1.0)):
        value = metrics.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            return sign * value
    return None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a server brings: its keys, the consortium's registry, where receipts go, and what it asks for.

    ``folder`` may hold registries that follow ``registry``: the newest counts, and one that comes later is taken up
    between two rounds. ``choose`` picks a round's participants among those present. ``order`` is public; each client's
    policy has the last word. ``metrics`` are measured after each round by those who took part, noised and charged as
    one step: only ``"correct"``, and only where the policy lists it. ``point`` is how updates are rounded, by a model's
    number of coordinates. ``min_roster`` is the fewest that a round needs, a majority of the registry unless given: a
    client whose policy wants more declines as ``roster``. ``retries`` is what is tried when a participant leaves
    after the sum was published: the same roster again, waited for up to ``patience`` seconds, and then new updates of
    the others; or, where all policies allow it, the same updates of the others. ``arrival`` is how many seconds a round
    waits for enough clients to be there. ``folder`` holds the session, and a run that was cut short goes on in it: the
    last model, the one that ``evaluate_fn`` gives the best ``score``, and those of every ``keep_every``-th round. An
    ``average`` of the last models is written beside them when a run ends, and those that it is made of are kept.
    ``scheme`` is what the server sees of updates: each (``SketchRounds``), or their sum alone (``ExactRounds``, for
    small models); clients whose policies want the other decline as ``scheme``.

    >>> from tempfile import TemporaryDirectory
    >>> from lrdp.accounting import Budget, Training
    >>> from lrdp.federation import ExactRounds, found
    >>> budget = Budget(epsilon=8.0, delta=1e-4)
    >>> training = Training(dataset_size=40, batch_size=8, rounds=2, local_steps=1, budget=budget)
    >>> with TemporaryDirectory() as folder:
    ...     ours = found(Path(folder) / "consortium", dict.fromkeys("abcdefg", training))
    ...     own = {"identity": ours.server_identity(), "registry": ours.registry(), "folder": ours.server_folder}
    >>> terms = Terms(order=Order(steps=1, learning_rate=0.5), scheme=ExactRounds(largest_roster=5), **own)
    >>> terms.least, str(terms.order)
    (4, 'steps=1, learning_rate=0.5')
    """

    identity: Identity
    registry: Registry
    folder: Path
    order: Order = field(default_factory=Order)
    choose: Choose = everybody
    metrics: tuple[str, ...] = ()
    point: Callable[[int], FixedPoint] = lambda size: FixedPoint(size=size)
    min_roster: int | None = None
    retries: Retries = Retries.SAME_ROSTER
    patience: float = 60.0
    arrival: float = 600.0
    keep_every: int | None = None
    average: Averaging | None = None
    score: Score = accuracy_or_loss
    scheme: RoundScheme = field(default_factory=SketchRounds)

    def __post_init__(self) -> None:
        for name, (kind, maker) in _MADE_WITH.items():
            if not isinstance(getattr(self, name), kind):
                raise InvalidInput(
                    f"{name} must be a {kind.__name__}, got a {type(getattr(self, name)).__name__}: {maker} makes one; "
                    f"nothing was started."
                )
        if self.scheme.masks and self.retries is Retries.SMALLER_ROSTER:
            raise InvalidInput(
                "exact rounds are tried again with the same roster alone: the sum over a part of it would show the "
                "server the updates of the rest; leave out retries."
            )
        limits.positive("arrival", self.arrival, "it is how long clients are waited for, in seconds")
        if self.keep_every is not None:
            limits.whole("keep_every", self.keep_every, 1, "a model is kept each time that many rounds are over")
        if self.average is not None:
            limits.made_by("average", self.average, Averaging)
        if not callable(self.score):
            raise InvalidInput(
                f"score must be a function of evaluate_fn's metrics, the higher the better, got {self.score!r}: as in "
                f"score=lambda found: -found['mse']."
            )

    @property
    def conduct(self) -> Conduct:
        """How rounds are led."""
        return Conduct(self.retries, self.scheme)

    @property
    def least(self) -> int:
        """The fewest participants that a round may have."""
        least = majority(self.registry) if self.min_roster is None else self.min_roster
        if least > len(self.registry.members):
            raise InvalidInput(
                f"a round needs {least}, and the registry has {len(self.registry.members)} members: nobody could train."
            )
        return least

    @property
    def registries(self) -> RegistryShelf:
        """Where `lrdp registry rotate` puts the consortium's next ones."""
        return RegistryShelf(self.folder)

    def newest(self) -> Terms:
        """The same with the newest registry that lies in the folder, which follows this one or is this one."""
        self.registries.put(self.registry)
        return replace(self, registry=self.registries.newest(self.registry))

    def under(self, registry: Registry) -> Terms:
        """The same with ``registry``, if it leads to this one or follows it by what lies in the folder."""
        self.registries.put(self.registry)
        known = self.registries.lineage(self.registry)
        return replace(self, registry=registry) if registry in known else self

    def open(self, arrays: ArrayRecord) -> Coordinator:
        """Start a session from these parameters, under the newest registry; it is on disk before anybody is greeted."""
        return self.newest()._opened(arrays)

    def _opened(self, arrays: ArrayRecord) -> Coordinator:
        values = {name: array.numpy() for name, array in arrays.items()}
        layout, nonce = Layout.of_arrays(values), os.urandom(HASH_SIZE)
        session = self.session(layout, nonce)
        self.scheme.require_size(session.parameters.point, self.registry)
        idle = server.start(self.identity, self.scheme.half, session, layout.flat(values))
        signature = sign_session(self.identity, session)
        hello = Hello(
            session=session.encode(),
            nonce=nonce,
            layout=layout.described,
            ancestors=tuple(each.encode() for each in self.registries.before(self.registry)),
            signature=signature,
        )
        coordinator = Coordinator(idle, hello, layout, self.archive(session), self.conduct)
        coordinator.begin()
        return coordinator

    def session(self, layout: Layout, nonce: bytes) -> Session:
        """The session of this name for models of this layout."""
        return Session(
            identifier=run_identifier(nonce, layout.described),
            server_key=self.identity.member.signing_key,
            parameters=Parameters(point=self.point(layout.size), method=self.scheme.half.method, min_roster=self.least),
            registry=self.registry,
        )

    def archive(self, session: Session) -> Archive:
        """The folder, for a session."""
        return Archive(self.folder, session, Keeping(every=self.keep_every, average=self.average))


def as_arrays(coordinator: Coordinator) -> ArrayRecord:
    """The model after the last round that was concluded, as Flower knows it."""
    return as_record(coordinator.layout, coordinator.model)


def as_record(layout: Layout, model: Model) -> ArrayRecord:
    """Parameters as Flower knows them."""
    values = layout.arrays(model)
    return ArrayRecord({name: Array(parameter) for name, parameter in values.items()})
