"""What a server keeps: models, receipts for auditors and late clients, heads of each client's ledgers, its state."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lrdp import files
from lrdp.errors import InvalidInput, NotVerified
from lrdp.federation.server.chronicle import Concluded, Rotation
from lrdp.federation.server.keeping import NOTHING_MORE, Keeping
from lrdp.federation.server.model_shelf import ModelShelf
from lrdp.federation.server.round_report import RoundReport
from lrdp.federation.server.saved_state import SavedState, write_state
from lrdp.federation.wire.case_files import write_case
from lrdp.federation.wire.forms import MOST_HEADS
from lrdp.integrity import (
    FailedRound,
    HistoryStep,
    RoundReceipt,
    Session,
    json_object,
    read_step,
    session_line,
    step_line,
)
from lrdp.ledger import Head

_FLOWER_LOG: Final = logging.getLogger("flwr")
_MOST_BYTES: Final = 64 << 20
_MOST_RECEIPTS: Final = 4 << 30


class Archive:
    """A server's folder in one session; docs/federation.md says what lies where."""

    def __init__(self, folder: Path, session: Session, keeping: Keeping = NOTHING_MORE) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._session = folder, session
        self.models = ModelShelf(folder, session, keeping)
        self.receipts = folder / f"receipts-{session.digest.hex()[:16]}.txt"
        self._heads_file = folder / "heads.json"
        self._attempts = folder / f"attempts-{session.digest.hex()[:16]}.txt"
        self._heads = _read_heads(self._heads_file) if self._heads_file.exists() else {}
        self._reports, self.written = folder / "rounds.jsonl", 0
        for path in (self.receipts, self._attempts, self._reports):
            _cut_unfinished(path)

    def read_steps(self) -> list[HistoryStep]:
        """The history in its file; raises InvalidInput where that is of another session, or damaged."""
        if not self._begun:
            return []  # the server died before it wrote any of it, or the file must be restored: the state knows
        first, *lines = files.read(self.receipts, _MOST_RECEIPTS).decode("ascii", "replace").split() or [""]
        try:
            if first != session_line(self._session):
                raise InvalidInput("it is of another session")
            steps = [read_step(bytes.fromhex(line)) for line in lines]
        except (ValueError, NotVerified) as problem:
            raise InvalidInput(f"{self.receipts} must be restored ({problem}): nothing was started.") from None
        self.written = len(steps)
        return steps

    @property
    def _begun(self) -> bool:
        """Whether the history's file has its first line: a power cut may have left it empty."""
        return self.receipts.exists() and self.receipts.stat().st_size > 0

    def save(self, state: SavedState) -> None:
        """Write the heads, and last the state: durable from here on."""
        self.save_heads()
        write_state(self.folder, state)

    def append_report(self, report: RoundReport) -> None:
        """What happened in an attempt, of public values alone."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        _append(self._reports, report.as_json(session=self._session.digest.hex()[:16], time=now))

    def add_accepted(self, steps: Sequence[Concluded | Rotation]) -> None:
        """Add to the history up to the first round without its quorum: such a round proves nothing.

        Its file is begun after the state: a server that dies before opens another session, and leaves nothing of this.
        """
        if not self._begun:
            _append(self.receipts, session_line(self._session))
        for step in itertools.takewhile(lambda step: step.accepted, steps[self.written :]):
            _append(self.receipts, step_line(step.encode()))
            self.written += 1

    def append_attempt(self, word: RoundReceipt) -> None:
        """What was signed in an attempt that failed: header, pledges and tags, for whoever asks who lied."""
        _append(self._attempts, step_line(word.encode()))

    def put_case(self, failed: FailedRound) -> Path:
        """A round whose tags did not add up, with what everybody said of it; for `lrdp blame`."""
        header = failed.case.header
        name = f"case-{self._session.digest.hex()[:16]}-{header.round + 1:05d}-{header.attempt + 1:03d}.safetensors"
        write_case(self.folder / name, failed)
        return self.folder / name

    def heads_of(self, name: str) -> tuple[str, ...]:
        """The highest head of each ledger that a client has had, as far as this server knows."""
        return tuple(self._heads.get(name, {}).values())

    def keep_head(self, name: str, head: str) -> None:
        """Keep the highest of each ledger: a rollback shows when it is handed back.

        Whoever opens another ledger starts at its first entry again, and what the old one reached says nothing of it:
        that is logged, for it may be of other records, or of the same with a second budget.
        """
        heads = self._heads.setdefault(name, {})
        known = set(heads)
        try:
            _keep(heads, head)
        except InvalidInput:
            return  # what is not a head is not handed back
        if known and heads.keys() - known:
            _FLOWER_LOG.warning("%s signs heads of another ledger than before: ask it whether a budget was lost.", name)

    def save_heads(self) -> None:
        """Durable from here on."""
        heads = {name: self.heads_of(name) for name in self._heads}
        files.replace(self._heads_file, json.dumps(heads).encode("ascii"), files.PUBLIC)


def _cut_unfinished(path: Path) -> None:
    """Cut off a last line that a power cut left without its end: an auditor would take it for a forged one."""
    if path.exists():
        data = files.read(path, _MOST_RECEIPTS)
        if not data.endswith(b"\n"):
            files.replace(path, data[: data.rfind(b"\n") + 1], files.PUBLIC)


def _append(path: Path, line: str) -> None:
    files.append(path, line.encode("ascii"), files.PUBLIC)


def _keep(heads: dict[str, str], head: str) -> None:
    """Put a head among those of a client, by ledger; beyond what fits a message, the one that has long not changed."""
    found = Head.decode(head)
    known = heads.get(found.ledger)
    if known is None or found.age > Head.decode(known).age:
        heads.pop(found.ledger, None)
        heads[found.ledger] = found.encode()
    while len(heads) > MOST_HEADS:
        del heads[next(iter(heads))]


def _read_heads(path: Path) -> dict[str, dict[str, str]]:
    """The heads by name and ledger; what cannot be read is an error, since without it a rollback would go unnoticed.

    Earlier versions wrote one head for each name.
    """
    try:
        heads = dict[str, dict[str, str]]()
        for name, kept in json_object(_ascii(files.read(path, _MOST_BYTES)), _MOST_BYTES).items():
            for head in kept if isinstance(kept, list) else [kept]:
                _keep(heads.setdefault(name, {}), str(head))
        return heads
    except OSError as problem:
        raise InvalidInput(f"the heads in {path} cannot be read: {problem.strerror}.") from None
    except (InvalidInput, NotVerified) as problem:
        raise InvalidInput(f"the heads in {path} are damaged, so restore the file: {problem}") from None


def _ascii(data: bytes) -> str:
    return data.decode("ascii") if data.isascii() else ""
