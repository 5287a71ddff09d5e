"""The operator's view: the books of very many clients, kept in columns, and who will run out next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrdp import limits
from lrdp.accounting import (
    FLEET_CHUNK,
    Adjacency,
    Budget,
    Filter,
    Fleet,
    Mechanism,
    RenyiOrders,
    ReservedSlots,
    readings,
)
from lrdp.errors import InvalidInput
from lrdp.ledger.choice import decode_choice
from lrdp.ledger.columns import read_columns, write_columns
from lrdp.ledger.reports import Report
from lrdp.ledger.texts import decode_mechanism, encode_mechanism

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ANY = 64.0
_MOST_KINDS = 1 << 16
_ROUND_DOWN = 1 - 1e-9  # rounds affordable are never one too many
_MOST_ROUNDS = 1 << 40  # with more left there is no limit to speak of


@dataclass(frozen=True, kw_only=True)
class FleetBooks:
    """Client c is row c of every column; ``filters`` and the fleet's mechanisms are interned."""

    fleet: Fleet
    names: NDArray[np.str_]
    ledgers: NDArray[np.str_]
    keys: NDArray[np.str_]
    seqs: IntArray
    epsilons: FloatArray
    deltas: FloatArray
    filters: tuple[str, ...]
    filter_numbers: NDArray[np.int32]
    following: NDArray[np.int32]
    following_steps: IntArray

    def __post_init__(self) -> None:
        if any(len(getattr(self, name)) != len(self.fleet) for name in _COLUMNS):
            raise InvalidInput(f"every column must have the {len(self.fleet)} rows of the fleet: books would be mixed.")
        for name, kind, least, most in (
            ("epsilons", np.float64, 0.0, math.inf),
            ("deltas", np.float64, 0.0, 1.0),
            ("filter_numbers", np.int64, -1, len(self.filters)),
            ("following", np.int64, -1, len(self.fleet.mechanisms)),
            ("following_steps", np.int64, 0, math.inf),
        ):
            column = np.asarray(getattr(self, name))
            if column.shape != (len(self.fleet),) or not np.can_cast(column.dtype, kind, "same_kind"):
                raise InvalidInput(f"{name} must hold a number for each client.")
            column = column.astype(kind)
            if not ((least < column) & (column < most)).all():
                raise InvalidInput(f"{name} must lie above {least} and below {most}: some figure would be wrong.")
            limits.keep(self, **{name: column})

    def __len__(self) -> int:
        return len(self.fleet)

    @classmethod
    def of(cls, reports: Iterable[Report]) -> FleetBooks:
        """Columns from reports, the newest of each ledger; all under one adjacency.

        Guarantees: a ledger is its key's. Of reports under two keys, of which neither handed over to the other, none
        is counted: whoever knows a ledger's id can sign a report with a key of their own.
        """
        rows = _newest(reports)
        kinds = {report.adjacency for report in rows}
        if len(kinds) != 1:
            raise InvalidInput(
                f"a fleet has one adjacency, got {len(kinds)}: figures under different ones cannot be compared, so "
                f"import them apart."
            )
        return _columns(rows, kinds.pop())

    def reports(self) -> Iterator[Report]:
        """The rows again as reports, each with the key that it is bound to; their signatures are not kept."""
        fleet = self.fleet
        for row in range(len(self)):
            yield Report(
                client=str(self.names[row]),
                ledger=str(self.ledgers[row]),
                key=str(self.keys[row]),
                opening_key=str(self.keys[row]),
                seq=int(self.seqs[row]),
                digest="",
                adjacency=fleet.adjacency,
                epsilon=float(self.epsilons[row]),
                delta=float(self.deltas[row]),
                filter=self.filters[self.filter_numbers[row]],
                history=self.history(row),
                following={fleet.mechanisms[self.following[row]]: int(self.following_steps[row])},
            )

    def history(self, row: int) -> dict[Mechanism, int]:
        """What one client ran."""
        fleet = self.fleet
        entries = range(fleet.starts[row], fleet.starts[row + 1])
        return {fleet.mechanisms[fleet.numbers[entry]]: int(fleet.steps[entry]) for entry in entries}

    def updated(self, newer: Iterable[Report]) -> FleetBooks:
        """With these reports, the newest of each ledger."""
        return FleetBooks.of([*self.reports(), *newer])

    def save(self, path: Path) -> None:
        """One file that numpy reads without running anything; until it is whole, the one before it stays."""
        write_columns(
            path,
            adjacency=np.array([self.fleet.adjacency.value]),
            mechanisms=np.array([encode_mechanism(each) for each in self.fleet.mechanisms]),
            starts=self.fleet.starts,
            numbers=self.fleet.numbers,
            steps=self.fleet.steps,
            filters=np.array(self.filters),
            **{name: getattr(self, name) for name in _COLUMNS},
        )

    @classmethod
    def load(cls, path: Path) -> FleetBooks:
        """What :meth:`save` wrote."""
        columns = read_columns(path, _FLEET | _COLUMNS)
        if max(len(columns["mechanisms"]), len(columns["filters"])) > _MOST_KINDS:
            raise InvalidInput(f"{path} holds no fleet: it has more than {_MOST_KINDS} kinds of steps or of filters.")
        try:
            fleet = Fleet(
                adjacency=Adjacency(str(columns["adjacency"].item())),
                mechanisms=tuple(decode_mechanism(str(text)) for text in columns["mechanisms"]),
                starts=columns["starts"],
                numbers=columns["numbers"],
                steps=columns["steps"],
            )
            filters = tuple(str(text) for text in columns["filters"])
            return cls(fleet=fleet, filters=filters, **{name: columns[name] for name in _COLUMNS})
        except (ValueError, OverflowError) as problem:
            raise InvalidInput(f"{path} holds no fleet: {problem}") from None


_FLEET = {"adjacency": "U", "mechanisms": "U", "starts": "i", "numbers": "i", "steps": "i", "filters": "U"}
_COLUMNS = {
    "names": "U",
    "ledgers": "U",
    "keys": "U",
    "seqs": "i",
    "epsilons": "f",
    "deltas": "f",
    "filter_numbers": "i",
    "following": "i",
    "following_steps": "i",
}


def _newest(reports: Iterable[Report]) -> list[Report]:
    given = list(reports)
    newest: dict[str, Report | None] = {report.ledger: None for report in given}
    for report in sorted(given, key=attrgetter("seq")):
        known = newest[report.ledger]
        if known is not None and known.key not in report.keys:
            raise InvalidInput(
                f"two keys claim the ledger {report.ledger[:16]!r} of {report.client!r}: {known.key[:16]!r} at entry "
                f"{known.seq} and {report.key[:16]!r} at entry {report.seq}, and the first did not hand over to the "
                f"second. Nothing was imported and what was known stays: ask the client which key is its own, and "
                f"leave out the other's report."
            )
        newest[report.ledger] = report
    return [report for report in newest.values() if report is not None]


def _columns(rows: list[Report], adjacency: Adjacency) -> FleetBooks:
    # The rounds to come are counted among the histories once, so that their mechanisms are interned too.
    fleet = Fleet.from_histories([report.history for report in rows], adjacency)
    number_of = {mechanism: number for number, mechanism in enumerate(fleet.mechanisms)}
    filter_of: dict[str, int] = {}
    next_steps = [next(iter(report.following.items())) for report in rows]
    following = [number_of.setdefault(mechanism, len(number_of)) for mechanism, _ in next_steps]
    return FleetBooks(
        fleet=Fleet(
            adjacency=adjacency,
            mechanisms=tuple(number_of),
            starts=fleet.starts,
            numbers=fleet.numbers,
            steps=fleet.steps,
        ),
        names=np.array([report.client for report in rows]),
        ledgers=np.array([report.ledger for report in rows]),
        keys=np.array([report.key for report in rows]),
        seqs=np.array([report.seq for report in rows], dtype=np.int64),
        epsilons=np.array([report.epsilon for report in rows]),
        deltas=np.array([report.delta for report in rows]),
        filter_numbers=np.array([filter_of.setdefault(r.filter, len(filter_of)) for r in rows], dtype=np.int32),
        filters=tuple(filter_of),
        following=np.array(following, dtype=np.int32),
        following_steps=np.array([steps for _, steps in next_steps], dtype=np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class FleetView:
    """Per client: ε spent, ε guaranteed, ε left and rounds like the last that are affordable."""

    books: FleetBooks
    spent: FloatArray
    guaranteed: FloatArray
    left: FloatArray
    rounds: IntArray

    def next_to_run_out(self, count: int) -> IntArray:
        """The rows of the clients with the fewest rounds left; of equal ones, those with the least ε left."""
        count = min(count, len(self.books))
        if count == 0:
            return np.zeros(0, dtype=np.int64)
        limit = np.partition(self.rounds, count - 1)[count - 1]
        among = np.flatnonzero(self.rounds <= limit)
        return among[np.lexsort((self.left[among], self.rounds[among]))][:count]


def fleet_view(books: FleetBooks) -> FleetView:
    """All figures of all clients at once."""
    spent, guaranteed = np.zeros(len(books)), np.zeros(len(books))
    rounds = np.zeros(len(books), dtype=np.int64)
    for delta in np.unique(books.deltas):
        chosen = books.deltas == delta
        spent[chosen] = books.fleet.epsilons(float(delta))[chosen]
        for number, text in enumerate(books.filters):
            rows = np.flatnonzero(chosen & (books.filter_numbers == number))
            if len(rows):
                guaranteed[rows], rounds[rows] = _filtered(books, rows, text, float(delta))
    spent = np.minimum(spent, guaranteed)  # what holds under adaptivity holds without
    left = np.maximum(books.epsilons - guaranteed, 0.0)
    return FleetView(books=books, spent=spent, guaranteed=guaranteed, left=left, rounds=rounds)


def _filtered(books: FleetBooks, rows: IntArray, text: str, delta: float) -> tuple[FloatArray, IntArray]:
    rule = decode_choice(text)
    kinds: dict[type[object], Any] = {RenyiOrders: _by_orders, ReservedSlots: _by_slots}
    found: tuple[FloatArray, IntArray] = kinds[type(rule)](books, rows, rule, delta)
    return found


def _by_orders(books: FleetBooks, rows: IntArray, rule: RenyiOrders, delta: float) -> tuple[FloatArray, IntArray]:
    """What a :class:`lrdp.accounting.Filter` says of each, for many at once."""
    curves = books.fleet.curves(np.array(list(rule.weights)))
    # ε grows with the divergence one to one, so its value at any one tells what the conversion costs.
    conversion = readings(np.array([_ANY]), rule.weights, delta) - _ANY
    guaranteed, rounds = np.zeros(len(rows)), np.zeros(len(rows))
    for first in range(0, len(rows), FLEET_CHUNK):
        part = slice(first, first + FLEET_CHUNK)
        used, clients = books.fleet.divergences(rows[part], curves), rows[part]
        guaranteed[part] = readings(used, rule.weights, delta).min(axis=1)
        cost = curves[books.following[clients]] * books.following_steps[clients, None]
        room = books.epsilons[clients, None] - conversion - used
        with np.errstate(divide="ignore", invalid="ignore"):
            rounds[part] = np.nan_to_num(np.floor(room * _ROUND_DOWN / cost), nan=0.0).max(axis=1)
    guaranteed[books.fleet.idle[rows]] = 0.0
    return guaranteed, np.clip(rounds, 0, _MOST_ROUNDS).astype(np.int64)


def _by_slots(books: FleetBooks, rows: IntArray, rule: ReservedSlots, delta: float) -> tuple[FloatArray, IntArray]:
    guaranteed, rounds = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    for place, row in enumerate(rows):
        budget = Budget(epsilon=float(books.epsilons[row]), delta=delta)
        used = Filter(rule=rule, budget=budget, adjacency=books.fleet.adjacency, history=books.history(row))
        following = books.fleet.mechanisms[books.following[row]]
        left = rule.left(budget, used.adjacency, used.history, following)
        guaranteed[place], rounds[place] = used.guaranteed.epsilon, left // int(books.following_steps[row])
    return guaranteed, rounds
