"""Tags that do not add up: who lied? Everybody is asked for its word, and the case is kept for an auditor."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from lrdp.errors import InvalidInput, LrdpError
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.wire.disputing import Deposed, Dispute
from lrdp.federation.wire.questions import Answer
from lrdp.integrity import Deposition, FailedRound, Published, blame, deposed, judged
from lrdp.screen import visible

_LOG: Final = logging.getLogger("lrdp.server")
_MISMATCH: Final = "sum-mismatch: a participant's tag is wrong"


def blamed(coordinator: Coordinator, courier: Courier) -> tuple[str, set[str]]:
    """What is wrong, and who is named: shown to have lied, one of two who did, or silent; the case is kept."""
    published = coordinator.state(Published)
    if coordinator.scheme.masks:  # a tag is a mere signature there, and has one value
        liars = {tag.name for tag in published.tags if tag.value}
        return f"{_MISMATCH}: {', '.join(sorted(liars))} lied", liars
    asked = Dispute(tags=coordinator.all_tags())
    answers = courier.exchange(dict.fromkeys(published.header.names, asked))
    words = tuple(word for answer in answers.values() if (word := _word(answer)) is not None)
    failed = failed_round(published, words)
    found = judged(failed)
    try:
        path = coordinator.archive.put_case(failed)
        _LOG.warning("tags do not add up: %s; `lrdp blame %s` shows it to anybody", visible(found.line), path)
    except InvalidInput as problem:
        _LOG.warning("tags do not add up: %s; %s", visible(found.line), visible(str(problem)))
    return f"{_MISMATCH}: {found.line}", found.named


def _word(answer: Answer) -> Deposition | None:
    try:
        return Deposition.decode(answer.word) if isinstance(answer, Deposed) else None
    except LrdpError:
        return None


def failed_round(published: Published, words: tuple[Deposition, ...]) -> FailedRound:
    """The case, with the update of the first whose bare tag is not its own: what the server says for itself.

    A word that its owner did not sign for this attempt is left out: whoever makes one up for another, or a void one for
    itself, would have an update opened that shows nothing, and that convicts the server.
    """
    case = blame.Case(
        position=published.idle.position,
        header=published.header,
        signature=published.signature,
        aggregate=published.aggregate,
        bare=(),
    )
    signed = {word.name: word for word in words if deposed(case, word)}
    bare = tuple(word.bare for word in signed.values())
    updates = tuple(update for update in published.updates if update.pledge.name in signed)
    accused = blame.accuse(replace(published, updates=updates), bare)
    kept = tuple(signed.values())
    return FailedRound(case=replace(case, bare=bare), tags=published.tags, depositions=kept, opened=accused)
