"""The privacy statement: what a compliance officer reads, every point filled from the books.

The points are those of NIST SP 800-226. It is evidence for an expert, and claims compliance with nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lrdp import limits
from lrdp.accounting import Mechanism, PrivacySpent
from lrdp.figures import AtLeast
from lrdp.ledger import Head, State, Summary, encode_mechanism
from lrdp.report import risk_figures
from lrdp.report.statement_points import Point, day, points
from lrdp.version import __version__

SCHEMA: Final = "lrdp-statement/1"
"""Changes when a key of the JSON changes its name or its meaning."""


@dataclass(frozen=True, kw_only=True)
class AuditBound:
    """What an attack on this very set-up achieved: ε is at least ``epsilon``, with this confidence."""

    epsilon: float
    confidence: float
    method: str

    def __post_init__(self) -> None:
        limits.open_unit("confidence", self.confidence, "an audit is a statistical test")


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Figures, the head they belong to, and what an audit found."""

    summary: Summary
    head: Head | None = None
    audit: AuditBound | None = None

    @property
    def points(self) -> tuple[Point, ...]:
        """All points, in the order in which they are read."""
        found = None
        if self.audit is not None:
            found = (
                f"ε is at least {AtLeast(self.audit.epsilon):.3f} at confidence {self.audit.confidence} "
                f"({self.audit.method})."
            )
        return points(self.summary, self.head, found)


def record(statement: Statement) -> dict[str, Any]:
    """The statement for programs."""
    summary = statement.summary
    return {
        "schema": SCHEMA,
        "client": summary.client,
        "unit": summary.policy.identity.unit,
        "max_rows_per_unit": summary.policy.identity.max_rows_per_unit,
        "clipped": summary.policy.identity.clipped.value,
        "adjacency": summary.adjacency.value,
        "budget": _budget(summary),
        "guaranteed": _spent(summary.guaranteed),
        "spent": _spent(summary.spent),
        "spent_at_other_deltas": [_spent(spent) for spent in summary.spent_elsewhere],
        "group": _spent(summary.group),
        "group_spent": _spent(summary.group_spent),
        "without_voids": _spent(summary.without_voids.spent),
        "guaranteed_without_voids": _spent(summary.without_voids.guaranteed),
        "recorded": _recorded(summary),
        "accountant": summary.accountant,
        "membership_guess_rate": summary.risk.guess_rate,
        "risk": risk_figures.record(summary.risk, summary.trade_off),
        "risk_spent": risk_figures.record(summary.risk_spent, summary.trade_off_spent),
        "mechanisms": [_mechanism(step, steps) for step, steps in summary.history.items()],
        "clip_norms": list(summary.clip_norms),
        "charges": {state.value: summary.states.get(state, 0) for state in State},
        "refusals": {refusal.value: count for refusal, count in summary.refusals.items()},
        "runs": summary.runs,
        "adopted_heads": summary.adopted,
        "suspended": summary.suspended,
        "closed": None if summary.closed is None else {"day": day(summary.closed.at), "reason": summary.closed.reason},
        "clock_went_back": summary.clock_fell,
        "ledger": _ledger(summary, statement.head),
        "policy_sha256": summary.policy.digest,
        "audit": None if statement.audit is None else vars(statement.audit),
        "version": __version__,
        "points": [{"key": point.key, "title": point.title, "text": point.text} for point in statement.points],
    }


def _budget(summary: Summary) -> dict[str, Any]:
    return {
        "epsilon": summary.budget.epsilon,
        "policy_epsilon": summary.policy.budget.total.epsilon,
        "opened": {"epsilon": summary.opened_epsilon, "day": day(summary.opened_at)},
        "raised": [{"epsilon": each.epsilon, "day": day(each.at), "reason": each.reason} for each in summary.raises],
        "delta": summary.budget.delta,
        "per_run_epsilon": summary.policy.budget.per_run.epsilon,
        "left": summary.left,
        "rounds_left": summary.rounds_left,
    }


def _ledger(summary: Summary, head: Head | None) -> dict[str, Any]:
    return {
        "id": summary.ledger,
        "client_key": summary.client_key,
        "entries": summary.entries,
        "digest": summary.digest,
        "head": None if head is None else head.encode(),
    }


def _spent(spent: PrivacySpent) -> dict[str, float | None]:
    return {"epsilon": spent.epsilon, "delta": spent.delta, "order": spent.order}


def _recorded(summary: Summary) -> dict[str, Any] | None:
    last = summary.recorded
    if last is None:
        return None
    return {"accountant": last.accountant, "guaranteed": last.guaranteed, "spent": last.spent}


def _mechanism(step: Mechanism, steps: int) -> dict[str, Any]:
    return {
        "text": encode_mechanism(step),
        "name": step.name,
        "noise_multiplier": step.noise_multiplier,
        "batch_size": getattr(step, "batch_size", None),
        "dataset_size": getattr(step, "dataset_size", None),
        "cap": getattr(step, "cap", None),
        "probability": getattr(step, "probability", 1.0),
        "steps": steps,
    }
