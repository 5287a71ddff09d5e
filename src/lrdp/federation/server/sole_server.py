"""One server at a time in a folder: two would each write a state and receipts that the other knows nothing of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from lrdp import files
from lrdp.errors import InvalidInput

LOCK_FILE: Final = "lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """No other server is at work in this folder until the block ends; one that is killed leaves it free.

    Raises:
        InvalidInput: where another one is, in this process or another, or the folder cannot be locked.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(files.locked_at_once(folder / LOCK_FILE, files.PUBLIC))
        except BlockingIOError:
            raise InvalidInput(
                f"another server is at work in {folder}, and two would spoil each other's session: wait until it ends, "
                f"stop it, or name another folder; nothing was started."
            ) from None
        except OSError as problem:
            raise InvalidInput(
                f"{folder / LOCK_FILE} cannot be locked ({problem.strerror}), so another server could be at work there "
                f"unnoticed: name a folder that can be written, on a file system with flock; nothing was started."
            ) from None
        yield
