"""A small federation with a real ledger for each client, whose books are compared with what the messages say."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from lrdp.accounting import Adjacency, Budget, Mechanism, RenyiAccountant, Training
from lrdp.errors import NoVerifiedRound
from lrdp.experiments import digits
from lrdp.experiments.demo import first_model
from lrdp.experiments.demo_clients import DemoHospitals
from lrdp.experiments.sensitivity.participation import Pattern
from lrdp.federation import Consortium, InProcessGrid, Node, Order, RoundReport, Terms, VerifiedAverage, found
from lrdp.federation.local.simulation import Federation
from lrdp.federation.wire.flower import from_message
from lrdp.federation.wire.questions import Contributed, read_message
from lrdp.integrity import FEWEST

_BATCHES: Final = 4  # a batch holds a fourth of the records
_DELTA: Final = 1e-5
_SERVER: Final = 1  # nodes are numbered from here on


@dataclass(frozen=True, kw_only=True)
class Small:
    """How large it is: each client has the same share of scikit-learn's digits, and ε for all rounds."""

    clients: int
    rounds: int
    local_steps: int
    epsilon: float

    @property
    def names(self) -> list[str]:
        return [f"client-{number:02}" for number in range(self.clients)]

    def training(self) -> Training:
        """What every policy allows."""
        records = digits.stated_size(self.clients)
        return Training(
            dataset_size=records,
            batch_size=records // _BATCHES,
            rounds=self.rounds,
            local_steps=self.local_steps,
            budget=Budget(epsilon=self.epsilon, delta=_DELTA),
        )


@dataclass(frozen=True, kw_only=True)
class Book:
    """One client's ledger compared with the messages: ``trained`` updates left it, ``lost`` of them never arrived.

    ``expected`` is the accountant's ε of the rounds it trained in; ``guaranteed`` holds under any adaptivity as well.
    """

    client: str
    trained: int
    lost: int
    charged_steps: int
    epsilon: float
    guaranteed: float
    expected: float

    @property
    def agrees(self) -> bool:
        """To the last digit."""
        return self.epsilon == self.expected


@dataclass
class _Chance:
    """Who takes part and whose update is lost, by public chance; and what left each client."""

    small: Small
    pattern: Pattern
    source: random.Random
    trained: Counter[int] = field(default_factory=Counter)
    lost: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        least, most = self.pattern.rate_least, self.pattern.rate_most
        self._rates = {name: self.source.uniform(least, most) for name in self.small.names}

    def choose(self, _round: int, present: Sequence[str]) -> Sequence[str]:
        """Each by its own rate; where too few would come to make a round, some more."""
        coming = [name for name in present if self.source.random() < self._rates[name]]
        others = [name for name in present if name not in coming]
        missing = max(0, FEWEST + 1 - len(coming))
        return coming + self.source.sample(others, min(missing, len(others)))

    def after(self, message: Any) -> Any:
        """Count each update that leaves a client, and lose some."""
        if not isinstance(read_message(from_message(message)), Contributed):
            return message
        node = message.metadata.src_node_id
        self.trained[node] += 1
        if self.source.random() >= self.pattern.lost:
            return message
        self.lost[node] += 1
        return None


def run(small: Small, pattern: Pattern, seed: int) -> dict[str, Any]:
    """Found it in a folder that is gone afterwards, run it, and compare each client's books with its messages."""
    with tempfile.TemporaryDirectory() as folder:
        consortium = found(Path(folder) / "all", dict.fromkeys(small.names, small.training()), min_roster=FEWEST)
        chance, reports = _Chance(small, pattern, random.Random(seed)), list[RoundReport]()  # noqa: S311 - public
        _serve(small, consortium, chance, reports)
        books = list(_books(small, consortium, chance))
    return {
        "books": [{**asdict(book), "agrees": book.agrees} for book in books],
        "agreeing": sum(book.agrees for book in books),
        "verified": sum(report.verified for report in reports),
        "rounds": small.rounds,
    }


def _serve(small: Small, consortium: Consortium, chance: _Chance, reports: list[RoundReport]) -> None:
    recipe = DemoHospitals(folder=consortium.folder, names=tuple(small.names))
    settings = [{"partition-id": number, "num-partitions": small.clients} for number in range(small.clients)]
    nodes = {_SERVER + number: Node(recipe(given), given) for number, given in enumerate(settings)}
    terms = Terms(
        identity=consortium.server_identity(),
        registry=consortium.registry(),
        folder=consortium.server_folder,
        order=Order(learning_rate=1.0),
        choose=chance.choose,
        min_roster=FEWEST,
    )
    federation = Federation(
        strategy=VerifiedAverage(terms, reports.append),
        recipe=recipe,
        nodes=small.clients,
        parameters=first_model(),
        rounds=small.rounds,
        evaluate=lambda _attempt, _parameters: None,
        log=consortium.folder / "logs",
    )
    with suppress(NoVerifiedRound):  # where all attempts were lost the books are compared all the same
        federation.serve(InProcessGrid(nodes, after=chance.after))


def _books(small: Small, consortium: Consortium, chance: _Chance) -> Iterator[Book]:
    for number, name in enumerate(small.names):
        trained = chance.trained[_SERVER + number]
        with closing(consortium.client(name).ledger()) as ledger:
            answer, charged = ledger.answer(), dict(ledger.books.charges.history)
            mechanism = ledger.policy.mechanism.costliest
        history: dict[Mechanism, int] = {mechanism: trained * small.local_steps} if trained else {}
        accountant = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
        yield Book(
            client=name,
            trained=trained,
            lost=chance.lost[_SERVER + number],
            charged_steps=sum(charged.values()),
            epsilon=answer.spent.epsilon,
            guaranteed=answer.guaranteed.epsilon,
            expected=accountant.epsilon(history, _DELTA).epsilon,
        )
