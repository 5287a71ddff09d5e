"""What the server's own files say while it runs, for whoever decides what happens next."""

from __future__ import annotations

from pathlib import Path

from lrdp.federation.server.saved_state import read_state
from lrdp.integrity import HistoryStep, Registry, RoundReceipt, read_step

LEAST = 3


def _folder(chaos: Path) -> Path:
    return chaos / "consortium" / "server"


def rounds_verified(chaos: Path) -> int:
    state = read_state(_folder(chaos))
    return 0 if state is None else state.round


def _steps(chaos: Path) -> list[HistoryStep]:
    """The history so far: the state has what the receipts have not yet, and perhaps some of what they have."""
    texts = [path.read_text() for path in _folder(chaos).glob("receipts-*.txt")]
    whole = [bytes.fromhex(line) for text in texts for line in text[: text.rfind("\n") + 1].split()[1:]]
    state = read_state(_folder(chaos))
    return [read_step(data) for data in [*whole, *(() if state is None else state.receipts)]]


def in_force(chaos: Path) -> int:
    """The version of the registry that the server took up last."""
    return max((step.version for step in _steps(chaos) if isinstance(step, Registry)), default=0)


def participants(chaos: Path) -> set[str]:
    """Whoever was in any round."""
    return {name for step in _steps(chaos) if isinstance(step, RoundReceipt) for name in step.header.names}


def could_do_without(chaos: Path, name: str) -> bool:
    """Whether no round needs a word that this member has not given yet, of those whose sums were shown so far.

    Where one does, whoever leaves between its tag and its ACCEPT ends the session for all others, and
    docs/federation.md says so: "When a round lacks a confirmation".
    """
    state = read_state(_folder(chaos))
    if state is None:
        return True
    rounds = [step for step in map(read_step, state.receipts) if isinstance(step, RoundReceipt)]
    open_ = [step.header.names for step in rounds if len(step.accepts) < _quorum(step.header.names)]
    return all(len(names) > _quorum(names) for names in [*open_, *(one.roster for one in state.shown)] if name in names)


def _quorum(names: tuple[str, ...]) -> int:
    return max(LEAST, len(names) // 2 + 1)
