"""Deaths, and what is written down of them and of the days."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from .server_files import rounds_verified


def die_after(calls: int, folder: Path, name: str) -> None:
    """SIGKILL after so many calls and returns of functions, C's among them; never for 0.

    The last thing that a process does is to write down in which round it died: whoever finds it dead knows less.
    """
    left = calls

    def count(_frame: Any, _event: str, _argument: Any) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            sys.setprofile(None)
            note(folder, dead=name, round=rounds_verified(folder))
            os.kill(os.getpid(), signal.SIGKILL)

    if calls:
        sys.setprofile(count)


def note(folder: Path, **what: object) -> None:
    """A line in the chaos's diary."""
    append(folder / "diary.jsonl", json.dumps({**what, "at": time.time()}))


def append(path: Path, line: str) -> None:
    """In one write: a killed process leaves it whole, or not at all."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)
