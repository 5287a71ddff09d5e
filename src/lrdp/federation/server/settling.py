"""From answers to a verified round: admit, publish, gather tags. The same for synchronous and asynchronous servers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from lrdp.errors import LrdpError
from lrdp.federation.server.blaming import blamed
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.nodes import SILENT
from lrdp.federation.server.revealing import dropped, revealed
from lrdp.federation.server.round_report import RoundReport
from lrdp.federation.wire.masked import Pledged
from lrdp.federation.wire.questions import Answer, Contributed, Decline, OwnTag
from lrdp.integrity import Verdict
from lrdp.ledger import Refusal
from lrdp.screen import visible

EXHAUSTED: Final = (*(refusal.value for refusal in Refusal if refusal.is_about_budget), Refusal.CLOSED.value)
"""Whoever declines with one of these has nothing to spend in this run, and is not asked again."""
UNANSWERED: Final = (SILENT.code, "no-guard")
"""Nothing is known of whoever declines with one of these: its guard or its node is being started."""
NOT_NOW: Final = (*UNANSWERED, "recharge")
"""Whoever declines with one of these may be able later: it is being started, or the round waits for a roster that it
showed before."""
UPDATE_SPENT: Final = Verdict.UPDATE_SPENT.value
"""Whoever declines with this made an update in this round that it does not show again."""
_LOG: Final = logging.getLogger("lrdp.server")
Settle = Callable[[Coordinator, Courier, RoundReport], RoundReport]
"""What is done with the updates that were admitted; :func:`settled` is the honest way."""


def gathered(coordinator: Coordinator, answers: Mapping[str, Answer]) -> RoundReport:
    """Admit the updates among the answers; note who declined, and what was not admissible."""
    model, declined, staleness = coordinator.round, dict[str, str](), dict[str, int]()
    for name, answer in answers.items():
        try:
            if isinstance(answer, Contributed | Pledged):
                coordinator.reached(name, answer.head)
                staleness[coordinator.take(answer)] = model - answer.trained_from
            else:
                declined[name] = answer.code if isinstance(answer, Decline) else "invalid"
        except LrdpError as problem:
            _LOG.warning("the update of %s was not admitted: %s", name, visible(str(problem)))
            declined[name] = "inadmissible"
    return RoundReport(model=model, participants=tuple(sorted(staleness)), declined=declined, staleness=staleness)


def settled(coordinator: Coordinator, courier: Courier, report: RoundReport) -> RoundReport:
    """Publish and gather tags; what cannot be proved is given up, and may be tried again from the same model."""
    if coordinator.scheme.masks:
        report = _all_bound(coordinator, courier, report)
    lost = [name for name, code in report.declined.items() if code == UPDATE_SPENT]
    if lost:  # its place or its ledger's last entries, so it would decline the same order for good
        coordinator.bury(lost)
        if len(report.participants) < coordinator.least:
            coordinator.repetitions.renew()
    problem, liars = _unfit(coordinator, report), set[str]()
    if not problem and coordinator.scheme.masks:
        problem = revealed(coordinator, courier)
    if not problem:
        problem = _announced(coordinator, courier)
        if not coordinator.missing_tags and coordinator.proved():
            coordinator.conclude()
            return replace(report, verified=True)
        if not coordinator.missing_tags:
            problem, liars = blamed(coordinator, courier)
    coordinator.give_up(liars)
    return replace(report, problem=problem)


def _all_bound(coordinator: Coordinator, courier: Courier, report: RoundReport) -> RoundReport:
    """Where somebody invited is bound to nothing, the others are invited again without it: no update is out yet."""
    while dropped(coordinator) and not _unfit(coordinator, report):
        fewer = gathered(coordinator, courier.exchange(coordinator.invite(report.participants, coordinator.order)))
        report = replace(fewer, declined={**report.declined, **fewer.declined})
    return report


def _unfit(coordinator: Coordinator, report: RoundReport) -> str:
    """Why no sum of what was gathered is published, if none is."""
    if len(report.participants) < coordinator.least:
        return f"{len(report.participants)} updates, and a round needs {coordinator.least}"
    if not coordinator.publishable():
        return "not the roster that was asked again: another sum of its updates would show single ones"
    return ""


def _announced(coordinator: Coordinator, courier: Courier) -> str:
    """Publish, and gather tags; what is wrong, if not all of them came."""
    (announcement, names), problem = coordinator.announce(), ""
    for _ in range(2):  # who was silent is asked once more for the same tag
        answers = courier.exchange({name: announcement for name in names if name in coordinator.missing_tags})
        for name, answer in answers.items():
            problem = _tagged(coordinator, name, answer) or problem
        if not coordinator.missing_tags:
            return ""
    return problem or f"no tag of {', '.join(sorted(coordinator.missing_tags))}"


def _tagged(coordinator: Coordinator, name: str, answer: Answer) -> str:
    """What is wrong with an answer to PUBLISH, if anything."""
    if not isinstance(answer, OwnTag):
        return f"{name}: {answer.code if isinstance(answer, Decline) else 'invalid'}"
    try:
        coordinator.tag(answer.tag)
    except LrdpError as problem:
        _LOG.warning("the tag of %s does not hold: %s", name, visible(str(problem)))
        return f"{name}: invalid tag"
    return ""
