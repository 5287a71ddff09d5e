"""Controls: the same evidence with one thing changed that cannot have been, and the check that must find it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from . import holding, losses
from .evidence import Blow, Charge, Evidence
from .schedule import SERVER, Change

NAME = "hospital-3"
"""One that is there from the first round to the last, in every schedule that is contradicted."""
Contradiction = tuple[Callable[[Evidence], None], Evidence, str]


def told(found: Evidence, **otherwise: Any) -> Evidence:
    """The same, but for what is told otherwise."""
    other = Evidence(found.folder, found.schedule)
    vars(other).update({**vars(found), **otherwise})
    return other


def contradicted(found: Evidence) -> Iterator[Contradiction]:
    """Of a chaos in which everything holds."""
    yield from _of_days(found)
    yield from _of_charges(found)
    yield from _of_sums(found)
    judged = [{**report, "metrics": {"accuracy": 2.0}} for report in found.reports]
    models = holding.models_are_the_first_one_and_the_sums_of_what_was_handed_in
    yield models, told(found, reports=judged), "a better one was judged"
    last = found.models[len(found.receipts)]
    kept = holding.every_kept_model_equals_its_receipt
    yield kept, told(found, models=dict.fromkeys(found.models, last) | {0: last}), "are kept"
    swapped = dict.fromkeys(found.models, last) if len(found.models) > 1 else {len(found.receipts): found.folder}
    yield kept, told(found, models=swapped), "is not what its receipt says"


def _of_days(found: Evidence) -> Iterator[Contradiction]:
    given, days = found.schedule, holding.every_day_of_the_schedule_came
    more = (*given.changes, Change(after=given.rounds, act="exclude", hospital=3))
    yield days, told(found, schedule=replace(given, changes=more)), "were to come"
    late = [(len(found.receipts), what, name) for _, what, name in found.days]
    yield days, told(found, days=late), "was in"
    staying = [(rounds, "joined" if what == "left" else what, name) for rounds, what, name in found.days]
    acts = {"leave": "join", "vanish": "join", "exclude": "join"}
    changes = tuple(replace(change, act=acts.get(change.act, change.act)) for change in given.changes)
    yield days, told(found, days=staying, schedule=replace(given, changes=changes)), "was in"
    budgets = holding.budgets_end_where_they_end
    yield budgets, told(found, schedule=replace(given, budgets=(1,) * len(given.budgets))), "have not run out"
    yield budgets, told(found, schedule=replace(given, budgets=(1000,) * len(given.budgets))), "is spent"
    yield holding.the_run_came_to_its_end, told(found, receipts=found.receipts[: given.rounds]), "rounds were verified"


def _of_charges(found: Evidence) -> Iterator[Contradiction]:
    """A charge more in each round; registries and sums that failed may explain some of them, and nothing all."""
    reasons = partial(losses.every_update_that_nobody_saw_has_a_reason, name=NAME)
    rounds = range(len(found.receipts))
    for state, digest, message in (
        ("READY", "an update", "nobody saw, for no reason"),
        ("RESERVED", "", "made nothing"),
    ):
        charges = {1 << 20 | number: Charge(1 << 20 | number, number, "", state, digest) for number in rounds}
        books = {**found._books, NAME: (found._books[NAME][0] | charges, {})}
        yield reasons, told(found, _books=books, blows=[]), message


def _of_sums(found: Evidence) -> Iterator[Contradiction]:
    shown = next(each for each in found.published if each.signature)
    again = replace(shown, signature=b"of another attempt")
    failing = told(found, published=[*found.published, again, again], blows=[])
    yield losses.every_sum_that_failed_lost_somebody, failing, "were struck"
    others = {name: ("another update", values) for name, (_, values) in shown.updates.items()}
    servers = [Blow(SERVER, "", shown.round, shown.round)] * 9
    given_up = told(found, published=[*found.published, replace(again, updates=others)], blows=servers)
    yield losses.every_roster_that_was_given_up_lost_a_member, given_up, "gave up updates"
