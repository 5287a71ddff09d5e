"""What a server keeps: the receipts for auditors and late clients, and each client's last ledger head, to hand back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from lrdp import files
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import RoundReceipt, Session, json_object, receipt_line, session_line
from lrdp.ledger import Head

_MOST_BYTES: Final = 64 << 20


class Archive:
    """A folder with receipts, for `lrdp verify`, what was signed in attempts that failed, and ``heads.json``."""

    def __init__(self, folder: Path, session: Session) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.receipts = folder / f"receipts-{session.digest.hex()[:16]}.txt"
        self._heads_file = folder / "heads.json"
        self._attempts = folder / f"attempts-{session.digest.hex()[:16]}.txt"
        self._heads = _read_heads(self._heads_file) if self._heads_file.exists() else {}
        _append(self.receipts, session_line(session))

    def append(self, receipt: RoundReceipt) -> None:
        """The line of a round."""
        _append(self.receipts, receipt_line(receipt))

    def append_attempt(self, word: RoundReceipt) -> None:
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
        files.replace(self._heads_file, json.dumps(self._heads).encode("ascii"), files.PUBLIC)


def _append(path: Path, line: str) -> None:
    files.append(path, line.encode("ascii"), files.PUBLIC)


def _read_heads(path: Path) -> dict[str, str]:
    """By name; what cannot be read is not forgotten in silence, for a rollback would go unnoticed."""
    try:
        heads = json_object(_ascii(files.read(path, _MOST_BYTES)), _MOST_BYTES)
        return {name: Head.decode(str(head)).encode() for name, head in heads.items()}
    except OSError as problem:
        raise InvalidInput(f"the heads in {path} cannot be read: {problem.strerror}.") from None
    except (InvalidInput, NotVerified) as problem:
        raise InvalidInput(f"the heads in {path} are damaged, so restore the file: {problem}") from None


def _ascii(data: bytes) -> str:
    return data.decode("ascii") if data.isascii() else ""
