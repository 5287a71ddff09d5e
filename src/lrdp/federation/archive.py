"""What a server keeps: the receipts for auditors and late clients, and each client's last ledger head, to hand back."""

from __future__ import annotations

import json
import os
from pathlib import Path

from lrdp.errors import InvalidInput
from lrdp.integrity import Receipt, Session
from lrdp.integrity.history import receipt_line, session_line
from lrdp.ledger import Head


class Archive:
    """A folder with receipts, for `lrdp verify`, what was signed in attempts that failed, and ``heads.json``."""

    def __init__(self, folder: Path, session: Session) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.receipts = folder / f"receipts-{session.digest.hex()[:16]}.txt"
        self._heads_file = folder / "heads.json"
        self._heads: dict[str, str] = json.loads(self._heads_file.read_text()) if self._heads_file.exists() else {}
        self._attempts = folder / f"attempts-{session.digest.hex()[:16]}.txt"
        _append(self.receipts, session_line(session))

    def append(self, receipt: Receipt) -> None:
        """The line of a round."""
        _append(self.receipts, receipt_line(receipt))

    def append_attempt(self, word: Receipt) -> None:
        """What was signed in an attempt that came to nothing: header, pledges and tags, for whoever asks who lied."""
        _append(self._attempts, receipt_line(word))

    def heads_of(self, name: str) -> tuple[str, ...]:
        """The highest head that a client's ledger signed, as far as this server knows."""
        head = self._heads.get(name)
        return () if head is None else (head,)

    def keep_head(self, name: str, head: str) -> None:
        """Keep the higher of this and the known one: a rollback shows when it is handed back."""
        try:
            known = self._heads.get(name)
            if known is None or Head.decode(head).age > Head.decode(known).age:
                self._heads[name] = Head.decode(head).encode()
        except InvalidInput:
            return  # what is no head is not handed back

    def save_heads(self) -> None:
        """Durable from here on."""
        fresh = self._heads_file.with_suffix(".new")
        fresh.write_text(json.dumps(self._heads), encoding="ascii")
        fresh.replace(self._heads_file)


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="ascii") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
