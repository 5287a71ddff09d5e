"""The points of the statement in words. Each is one fact or one limit; none promises what the books do not show."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from lrdp.accounting import CLIP_HEADROOM, Adjacency, Mechanism, PrivacySpent
from lrdp.figures import AtLeast, AtMost
from lrdp.ledger import Clipped, Head, State, Summary
from lrdp.report import risk_figures
from lrdp.version import __version__

_NEIGHBOURS: Final = {
    Adjacency.ADD_REMOVE: "with and without one {record}",
    Adjacency.REPLACE_ONE: "with one {record} replaced by another",
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One row of the statement."""

    key: str
    title: str
    text: str


def points(summary: Summary, head: Head | None, audit: str | None) -> tuple[Point, ...]:
    """All of them, in the order in which they are read."""
    rows = (
        ("plainly", "In one sentence", plain_sentence(summary)),
        ("unit", "Unit of privacy", _unit(summary)),
        (
            "adjacency",
            "Neighbouring data sets",
            f"{summary.adjacency.value}: data sets {_neighbours(summary)}.",
        ),
        ("epsilon", "ε at several δ", _epsilons(summary)),
        ("risk", "Detecting one record", _risk(summary)),
        ("trust", "Trust model", _TRUST),
        ("mechanism", "Mechanism", _mechanisms(summary)),
        ("scope", "Composition", _scope(summary)),
        ("covered", "Outputs covered", _COVERED),
        ("uncovered", "Outputs not covered", _UNCOVERED),
        ("budget", "Budget", _budget(summary)),
        ("versions", "Versions and arithmetic", _versions(summary)),
        ("channels", "Side channels", _CHANNELS),
        ("tuning", "Tuning and preprocessing", _TUNING),
        ("audit", "Empirical audit", audit or "None was recorded for this ledger."),
        ("head", "Ledger head", _head(summary, head)),
        ("renewal", "Renewal", _RENEWAL),
    )
    return tuple(Point(key=key, title=title, text=text) for key, title, text in rows)


_TRUST: Final = (
    "Local: each update is noised on the client's machine before it leaves. The server, the other clients and the "
    "network may see every update and may work together; only this machine and its administrator are trusted."
)
_COVERED: Final = (
    "Every noised update that this client sent, everything computed from them (models, averages, metrics), and the "
    "ledger's heads and refusals, which do not depend on the records."
)
_UNCOVERED: Final = (
    "Whatever left the machine other than through this ledger; that the data set exists, and the public bound on its "
    "size; results of other analyses of the same records, whose ε adds to this one."
)
_CHANNELS: Final = (
    "The time, energy and memory of training are not noised. Batches of constant size keep memory constant; the time "
    "of a step may still vary with the records' content."
)
_TUNING: Final = (
    "All training is charged, failed and abandoned attempts too, so tuning on these records is inside ε. "
    "Preprocessing must use public constants; constants fitted on the records are not covered."
)
_RENEWAL: Final = (
    "None: the budget is for the lifetime of these records. It is never refilled by time, and raised only by a signed "
    "act that is shown above; new records need a new ledger, and records that stay carry their old ε with them."
)


def plain_sentence(summary: Summary) -> str:
    """The bound on membership inference, for everyone."""
    unit, record = summary.policy.identity.unit, _record(summary)
    if not summary.history:
        return f"Nothing has been released yet, so nothing can be learned about any {unit} from this client's updates."
    right = f"{AtMost(summary.risk.guess_rate):.1%}".removesuffix("%")
    return (
        f"Asked whether one {record} was used, somebody who sees everything this client ever sent, and already knows "
        f"every other {record}, gives at most {right} right answers in 100, where a coin gets 50."
    )


def _record(summary: Summary) -> str:
    """What is there, or not there, as a whole."""
    identity = summary.policy.identity
    return f"{identity.unit} with all rows" if identity.clipped is Clipped.UNITS else "record"


def _neighbours(summary: Summary) -> str:
    return _NEIGHBOURS[summary.adjacency].format(record=_record(summary))


def _unit(summary: Summary) -> str:
    identity, rows = summary.policy.identity, summary.policy.identity.max_rows_per_unit
    if identity.clipped is Clipped.UNITS:
        return (
            f"One {identity.unit}, with all rows: they are drawn together, at most {rows} of them, and clipped as one. "
            f"So every figure here is for a {identity.unit}, and every size counts units and not rows."
        )
    text = f"One record; a {identity.unit} has at most {rows} of them."
    if rows > 1:
        text += (
            f" For all of them together {_bound(summary.group)} is guaranteed, and had the same steps been fixed in "
            f"advance, {_bound(summary.group_spent)}."
        )
    return text


def _epsilons(summary: Summary) -> str:
    guaranteed, spent = summary.guaranteed, summary.spent
    order = "" if guaranteed.order is None else f", order {guaranteed.order}"
    elsewhere = "; ".join(map(_bound, summary.spent_elsewhere))
    text = (
        f"Guaranteed, whatever the server adapts to: {_bound(guaranteed)}{order}. Spent, had the same steps been fixed "
        f"in advance: {elsewhere}"
    )
    text += "." if spent.order is None else f" (best order {spent.order})."
    last = summary.recorded
    if last is not None:
        text += (
            f" When the last charge was made, {last.accountant} computed {AtMost(last.guaranteed):.4f} guaranteed and "
            f"{AtMost(last.spent):.4f} spent; the figures here are recomputed by {summary.accountant}."
        )
    return text


def _risk(summary: Summary) -> str:
    if not summary.history:
        return "Nothing has been released yet."
    guaranteed, spent = map(risk_figures.words, (summary.risk, summary.risk_spent))
    return f"Guaranteed, whatever the server adapts to: {guaranteed} Had the steps been fixed in advance: {spent}"


def _bound(spent: PrivacySpent) -> str:
    return f"ε = {AtMost(spent.epsilon):.4f} at δ = {AtMost(spent.delta)}"


def _mechanisms(summary: Summary) -> str:
    if not summary.history:
        return "No step has been charged yet."
    clip = " and ".join(map(str, summary.clip_norms))
    steps = "; ".join(f"{count} steps of {_mechanism(step)}" for step, count in summary.history.items())
    return (
        f"{steps}; clip norm C = {clip}. Sampler, noise and accountant read this one value; the sampler's tests "
        f"compare inclusion, pair and overlap frequencies with the law, and a shuffling control fails them."
    )


_SYMBOLS: Final = {"batch_size": "B", "dataset_size": "n"}


def _mechanism(step: Mechanism) -> str:
    words = [f"{step.name} sampling, σ = {step.noise_multiplier}"]
    named = [number for number in _SYMBOLS if number in step.numbers]
    others = [number for number in step.numbers if number not in (*_SYMBOLS, "noise_multiplier")]
    words += [f"{_SYMBOLS.get(number, number)} = {getattr(step, number)}" for number in (*named, *others)]
    words += [f"q = {AtMost(step.probability)}"] if hasattr(step, "probability") else []
    return ", ".join(words)


def _scope(summary: Summary) -> str:
    text = (
        f"Every charge since the ledger began, over all servers and {summary.runs} session(s), each "
        f"counted anew where its registry changed: "
        f"{sum(summary.states.values())} charges, {summary.states.get(State.SENT, 0)} of them sent."
    )
    voided = summary.states.get(State.VOID, 0)
    if voided:
        text += (
            f" Voided by the administrator: {voided}; with them the guarantee would be "
            f"{_bound(summary.without_voids.guaranteed)}."
        )
    if summary.adopted:
        text += f" Lost stretches charged at the policy's worst case: {summary.adopted}."
    if summary.suspended:
        text += " The ledger is suspended: it was shown a head that it signed but does not contain."
    return text


def _budget(summary: Summary) -> str:
    refused = sum(summary.refusals.values())
    kinds = ", ".join(f"{kind.value} {count}" for kind, count in summary.refusals.items())
    return (
        f"{_closed(summary)}ε = {summary.budget.epsilon} at δ = {summary.budget.delta}{_raises(summary)}, at most "
        f"{summary.policy.budget.per_run.epsilon} by one server; {AtMost(summary.guaranteed.epsilon):.4f} used, "
        f"{AtLeast(summary.left):.4f} left, {summary.rounds_left} more rounds like the last; {refused} requests "
        f"refused{f' ({kinds})' if kinds else ''}, at no cost{summary.policy_note}."
    )


def _raises(summary: Summary) -> str:
    """The budget as it was opened, and each raise that the administrator has signed since, with their days."""
    if not summary.raises:
        return ""
    first = f"opened with {summary.opened_epsilon} on {day(summary.opened_at)}"
    later = (f"raised to {each.epsilon} on {day(each.at)} ({each.reason})" for each in summary.raises)
    return f" ({'; '.join([first, *later])}, each signed by the administrator)"


def _closed(summary: Summary) -> str:
    if summary.closed is None:
        return ""
    return (
        f"Closed on {day(summary.closed.at)} ({summary.closed.reason}): nothing is charged any more, and what was "
        f"spent stays spent. "
    )


def day(clock: int) -> str:
    """The day of an entry's clock, as the machine had it, in UTC."""
    try:
        return f"{datetime.fromtimestamp(clock / 1e6, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return "a day beyond the calendar"


def _versions(summary: Summary) -> str:
    return (
        f"lrdp {__version__}, Python {platform.python_version()}; accountant {summary.accountant}, rounded up. In "
        f"lrdp.training, noise comes from a cryptographic generator keyed by the operating system, is "
        f"added in float64 and snapped to a public grid; gradients in float32 are clipped to C(1 - 1/"
        f"{AtMost(1 / CLIP_HEADROOM['float32']):.0f}), and the rest of C bounds, by proof, what rounding can add to "
        f"one record's share."
    )


def _head(summary: Summary, head: Head | None) -> str:
    text = f"Ledger {summary.ledger}, entry {summary.entries}, {summary.digest}"
    if summary.clock_fell:
        text += f"; the clock went back {summary.clock_fell} time(s), on which nothing depends"
    if head is None:
        return f"{text}; not signed here."
    return f"{text}; signed by the key {summary.client_key}: {head.signature}."
