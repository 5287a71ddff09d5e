"""Ledgers as the first release wrote them, each with what it said then; and how each was made.

Every file was written once, by its function below, and is never written again: whoever changes the format adds a
migration to ``lrdp ledger upgrade`` and files beside these. Today's release still makes the like of each: what is kept
is what users have.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.worlds import STEP, World, policy, request, round_trip, trained
from lrdp.accounting import (
    Adjacency,
    Budget,
    FilterRule,
    FullBatchGaussian,
    History,
    RenyiOrders,
    ReservedSlots,
    Training,
    TruncatedPoissonGaussian,
)
from lrdp.errors import LedgerDamaged, PolicyRefused
from lrdp.ledger import (
    RECOMMENDED,
    BudgetCounting,
    Clipped,
    Holder,
    Ledger,
    Policy,
    PolicyRecipe,
    Request,
    SigningKey,
    State,
    adopt_head,
    draft,
    end_participation,
    parse_policy,
    promised,
    raise_budget,
    rotate_key,
    verify_export,
    void,
)

FIXTURES = Path(__file__).parent / "fixtures"
TRAINING = Training(dataset_size=317, batch_size=16, rounds=6, local_steps=5, budget=Budget(epsilon=2.0, delta=1e-5))
HOLDER = Holder(client="hospital-a", unit="patient", max_rows_per_unit=1)
UNITS = replace(HOLDER, max_rows_per_unit=7, clipped=Clipped.UNITS)
WHOLE = PolicyRecipe(FullBatchGaussian, BudgetCounting.RENYI)


def key(number: int) -> SigningKey:
    """Keys that anybody can make: they sign for nothing but these files."""
    return SigningKey._of(Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)))


class Figures(NamedTuple):
    """What the books came to on the day they were written; ``next_spent`` is ``spent`` after five steps more."""

    opened: float
    budget: float
    guaranteed: float
    spent: float
    next_spent: float


@dataclass(frozen=True, kw_only=True)
class KeptLedger:
    """A file of ``fixtures``, its maker, whose key is in force, and what must be read from it for ever."""

    name: str
    made: Callable[[Path], None]
    entries: int
    digest: str
    rule: FilterRule
    history: History
    states: Mapping[State, int]
    figures: Figures
    rounds_left: int
    signer: int = 1
    adopted: int = 0
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    clipped: Clipped = Clipped.ROWS

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        return FIXTURES / f"{self.name}.db"

    def put(self, folder: Path) -> World:
        """A copy, with its keys, under the policy that it holds."""
        shutil.copyfile(self.path, folder / "ledger.db")
        last = verify_export(folder / "ledger.db").books.policies[-1]
        return world(folder, parse_policy(last.text, source="policy.toml"), self.signer)


def world(folder: Path, rules: Policy, signer: int = 1) -> World:
    return World(folder=folder, rules=rules, key=key(signer), administrator=key(3))


def asked(ledger: Ledger, number: int) -> Request:
    """Five of the policy's costliest steps, as a server asks for them."""
    rule = ledger.policy.mechanism
    return request(number, mechanism=rule.costliest, steps=5, clip_norm=rule.clip_norm)


def _every_kind(place: Path) -> None:
    """Fixed-size batches under two orders; every kind of entry but CLOSED."""
    first = world(place, policy(min_noise_multiplier="3.7"))
    with first.create(rule=RenyiOrders(weights={9.0: 0.75, 22.0: 0.25})) as ledger:
        round_trip(ledger, request(1))
        first.back_up(place / "older.db")
        round_trip(ledger, request(2))
        head = ledger.head()
    (place / "older.db").replace(first.path)
    with first.open() as ledger:
        with suppress(LedgerDamaged):
            ledger.witness(head)
        adopt_head(ledger, head, key(3))
        charge = ledger.charge(request(3))
        void(ledger, charge.entry, "power cut before training", key(3))
        for number in range(20):
            with suppress(PolicyRefused):
                ledger.charge(request(number + 50, steps=1000))
        trained(ledger, ledger.charge(request(4)))
        rotate_key(ledger, key(1), key(2))
    rules = policy(epsilon="9.5", per_run_epsilon="9.5", min_noise_multiplier="3.7")
    with world(place, rules, 2).open() as ledger:
        raise_budget(ledger, "second study", key(3))


def _reserved(place: Path) -> None:
    """As `lrdp init` opens it where nothing is said: truncated Poisson, rounds reserved; a lost branch was adopted."""
    rules = parse_policy(draft(HOLDER, TRAINING, recipe=RECOMMENDED).text(), source="policy.toml")
    first = world(place, rules)
    with first.create(rule=promised(rules).rule) as ledger:
        round_trip(ledger, asked(ledger, 1))
        first.back_up(place / "older.db")
        round_trip(ledger, asked(ledger, 2))
        head = ledger.head()
    (place / "older.db").replace(first.path)
    with first.open() as ledger:
        with suppress(LedgerDamaged):
            ledger.witness(head)
        adopt_head(ledger, head, key(3))
        round_trip(ledger, asked(ledger, 3))
        trained(ledger, ledger.charge(asked(ledger, 4)))


def _closed(place: Path) -> None:
    """The same at its end, with a reply that was not sent yet."""
    _reserved(place)
    with world(place, parse_policy(draft(HOLDER, TRAINING).text(), source="policy.toml")).open() as ledger:
        end_participation(ledger, "the study has ended", key(3))


def _whole_units(place: Path) -> None:
    """Every record in every step, a patient's rows clipped as one, replaced and not removed; the budget raised."""
    text = draft(UNITS, TRAINING, recipe=WHOLE).text().replace('"add-remove"\n', '"replace-one"\n')
    rules = parse_policy(text, source="policy.toml")
    first = world(place, rules)
    with first.create(rule=promised(rules).rule) as ledger:
        round_trip(ledger, asked(ledger, 1))
    more = parse_policy(text.replace("epsilon = 2.0", "epsilon = 3.5"), source="policy.toml")
    with replace(first, rules=more).open() as ledger:
        raise_budget(ledger, "second study", key(3))
        trained(ledger, ledger.charge(asked(ledger, 2)))


def _loosened(place: Path) -> None:
    """Less noise for a while, in entries that were lost: the head that was adopted says so, as all heads do now."""
    rules = policy(min_noise_multiplier="3.7", per_run_epsilon="8.0")
    first = world(place, rules)
    with first.create(rule=RenyiOrders(weights={4.0: 1.0})) as ledger:
        round_trip(ledger, request(1))
        first.back_up(place / "older.db")
    with replace(first, rules=policy(min_noise_multiplier="1.8", per_run_epsilon="8.0")).open() as ledger:
        round_trip(ledger, request(2, mechanism=_LOOSER))
    with first.open() as ledger:
        head = ledger.head()
    (place / "older.db").replace(first.path)
    with first.open() as ledger:
        adopt_head(ledger, head, key(3))
        trained(ledger, ledger.charge(request(3)))


_LOOSER = STEP.with_noise(1.8)
_FIRST_STEP = TruncatedPoissonGaussian(noise_multiplier=1.84357, dataset_size=317, batch_size=16, cap=16)
_EVERY_KIND = KeptLedger(
    name="format-1",
    made=_every_kind,
    entries=31,
    digest="4c2fb00d9330d41df354e8ac307fd05845e66a5421d98e7c7395d4110807fad4",
    rule=RenyiOrders(weights={9.0: 0.75, 22.0: 0.25}),
    history={STEP: 117},
    states={State.SENT: 1, State.VOID: 1, State.READY: 1},
    figures=Figures(8.0, 9.5, guaranteed=0.8924510488622274, spent=0.8260281280549469, next_spent=0.841826338820806),
    rounds_left=191,
    signer=2,
    adopted=1,
)
_RESERVED = KeptLedger(
    name="format-1-reserved",
    made=_reserved,
    entries=12,
    digest="132e44cb9eeb793186d722fcb71a8e680b7337f5037777b05b09d4a5e2f8f875",
    rule=ReservedSlots(slots={_FIRST_STEP: 30}),
    history={_FIRST_STEP: 20},
    states={State.SENT: 2, State.READY: 1},
    figures=Figures(2.0, 2.0, guaranteed=1.9999824799617065, spent=1.8144487451561053, next_spent=1.9119659305771635),
    rounds_left=2,
    adopted=1,
)
_CLOSED = replace(
    _RESERVED,
    name="format-1-closed",
    made=_closed,
    entries=13,
    digest="7651b8f6d7304d6397fed709a7d16af72acb6bf91334bca189cd548c576c9595",
    rounds_left=0,
)
_UNITS = KeptLedger(
    name="format-1-units",
    made=_whole_units,
    entries=9,
    digest="4d8312981041261fdb82a2992f87b60d9de795645fb97f32e1d44c50363736e7",
    rule=RenyiOrders(weights={12.20425326962032: 1.0}),
    history={FullBatchGaussian(noise_multiplier=11.7712, dataset_size=317): 10},
    states={State.SENT: 1, State.READY: 1},
    figures=Figures(2.0, 3.5, guaranteed=2.4803389655789814, spent=2.345733260920519, next_spent=2.941483107514122),
    rounds_left=1,
    adjacency=Adjacency.REPLACE_ONE,
    clipped=Clipped.UNITS,
)
_LOOSENED = KeptLedger(
    name="format-1-loosened",
    made=_loosened,
    entries=8,
    digest="67ecd304508d1b8407cb694aa46bcc28eadaaae6f47b46ecffccbf18968b328b",
    rule=RenyiOrders(weights={4.0: 1.0}),
    history={STEP: 78, _LOOSER: 78},  # what is lost is known to within a factor of two
    states={State.SENT: 1, State.READY: 1},
    figures=Figures(8.0, 8.0, guaranteed=4.211024825704572, spent=3.2834861257912595, next_spent=3.2866258401764625),
    rounds_left=214,
    adopted=1,
)
OPEN = [_EVERY_KIND, _RESERVED, _UNITS, _LOOSENED]
CLOSED = [_CLOSED]
KEPT = OPEN + CLOSED
