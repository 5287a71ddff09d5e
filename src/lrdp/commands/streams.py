"""The two streams that a command speaks on: every letter can be written, and a stream that fails is a sentence too.

Whoever writes in a command (``print``, rich, typer's help, a log) writes here, so nothing else needs to know that a
terminal may have no ε, a disk may be full and a reader may have left.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from lrdp.errors import InvalidInput
from lrdp.screen import spelled


@contextmanager
def streams() -> Iterator[None]:
    """Standard output and standard error, fit to be written to.

    Raises:
        InvalidInput: before anything is done where standard output is closed, and where it takes no more.
    """
    with ExitStack() as stack:
        words: Any = sys.stderr or stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        stack.enter_context(redirect_stderr(_Stream.of(words, _unheard)))
        if sys.stdout is None:
            raise InvalidInput("standard output is closed, so the answer would be lost: nothing was done.")
        answers = _Stream.of(sys.stdout, _unanswered)
        stack.enter_context(redirect_stdout(answers))
        yield
        answers.flush()


class _Stream:
    """A stream as it is, except for what it does with letters that it lacks, and when it fails.

    It fails for good: where somebody on the way caught the error, as a federation does for whoever watches it, the next
    word is lost as well, and the command must not end as if all had been said.
    """

    def __init__(self, stream: TextIO, failed: Callable[[OSError], None]) -> None:
        self._stream, self._failed = stream, failed
        self._lost: OSError | None = None

    @classmethod
    def of(cls, stream: TextIO, failed: Callable[[OSError], None]) -> Any:
        """Stands in for a stream; what it does not change is the stream's own."""
        return cls(stream, failed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self._lost is not None:
            self._failed(self._lost)
        with self._watched():
            self._stream.write(spelled(text, self._stream.encoding or "ascii"))
        return len(text)

    def flush(self) -> None:
        with self._watched():
            self._stream.flush()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self._lost = problem
            _abandon(self._stream)
            self._failed(problem)


def _abandon(stream: TextIO) -> None:
    """What is still in its buffer goes nowhere: otherwise the interpreter would fail at it once more when it ends."""
    with suppress(OSError, io.UnsupportedOperation), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _unanswered(problem: OSError) -> NoReturn:
    raise InvalidInput(
        f"the answer cannot be written to standard output: {problem.strerror}; what was charged or written to files "
        f"before stands, and nothing more was begun."
    ) from problem


def _unheard(_: OSError) -> None:
    """There is nobody left to tell; the exit code still says how it ended."""
