"""Making entries from what they record."""

from __future__ import annotations

import secrets
from typing import Final

from lrdp.accounting import FilterAnswer, FilterRule
from lrdp.ledger import events
from lrdp.ledger.choice import encode_choice
from lrdp.ledger.policy import Policy
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.request import Request
from lrdp.version import __version__

LONGEST_SENTENCE: Final = 400


def opening(policy: Policy, key: str, administrator: str, rule: FilterRule, clock: int) -> events.Opened:
    """The first entry of a ledger."""
    return events.Opened(
        at=clock,
        format=str(events.FORMAT),
        ledger=secrets.token_hex(16),
        client=policy.identity.client,
        unit=policy.identity.unit,
        max_rows_per_unit=policy.identity.max_rows_per_unit,
        adjacency=policy.budget.adjacency,
        epsilon=policy.budget.total.epsilon,
        delta=policy.budget.total.delta,
        filter=encode_choice(rule),
        client_key=key,
        administrator_key=administrator,
    )


def reservation(request: Request, after: FilterAnswer, accountant: str, clock: int) -> events.Reserved:
    """The entry of an admitted request, with what the books make of it."""
    return events.Reserved(
        at=clock,
        key=request.key,
        run=request.full_name,
        round=request.round,
        mechanism=request.mechanism,
        steps=request.steps,
        clip_norm=request.clip_norm,
        accountant=f"{accountant} lrdp/{__version__}",
        guaranteed=after.guaranteed.epsilon,
        spent=after.spent.epsilon,
    )


def declined(request: Request, refusal: Refusal, sentence: str, clock: int) -> events.Declined:
    """The entry of a refused request; its sentence may quote the server, so it is cut."""
    return events.Declined(clock, request.key, request.full_name, request.round, refusal, sentence[:LONGEST_SENTENCE])
