"""What a guard says while it runs: its log, for people or as JSON, and its page of metrics."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final, TextIO

from lrdp import files
from lrdp.commands.output import say
from lrdp.commands.paths import require_kind
from lrdp.errors import InvalidInput
from lrdp.screen import visible

GUARD_LOG: Final = logging.getLogger("lrdp.guard")
ShowLine = Callable[[str], None]
_PAGE: Final = b"# HELP"
_TIMED: Final = re.compile(rb'\d{4}-\d\d-\d\dT|\{"time": \d')
_LONGEST_TIME: Final = 16
_FIELDS: Final = (
    *("asked", "answered", "seconds", "round", "charged"),
    *("client", "spent", "left", "total", "rounds_left", "socket", "unsent"),
)


@contextmanager
def shown(address: str | None, path: Path | None) -> Iterator[ShowLine]:
    """Where the page's text goes: to a loopback address, to a file, to both or nowhere."""
    from lrdp.federation.wire.metrics_page import MetricsPage

    page = None if address is None else MetricsPage(address)
    try:
        write = None if path is None else _page_file(path)

        def show(text: str) -> None:
            if page is not None:
                page.text = text
            if write is not None:
                write(text)

        yield show
    finally:
        if page is not None:
            page.close()


def _page_file(path: Path) -> ShowLine:
    """What writes the page to a file, readable by everybody who may enter its folder.

    A guard that does not start leaves an earlier one's page as it is.

    Raises:
        InvalidInput: where the path is wrong. A disk that is full later on ends no guard: that is logged, and once.
    """
    failing = False

    def write(text: str) -> None:
        nonlocal failing
        before, failing = failing, True
        try:
            files.replace(path, text.encode(), files.PUBLIC)
            failing = False
        except OSError as problem:
            if not before:
                GUARD_LOG.warning("metrics cannot be written to %s: %s; the guard goes on.", path, problem.strerror)

    try:
        require_kind(path, _PAGE)
        files.require_replaceable(path)
    except OSError as problem:
        raise InvalidInput(f"metrics cannot be written to {path}: {problem.strerror}.") from None
    return write


def log_to(as_json: bool, path: Path | None) -> None:
    """Everything to stdout as JSON or to stderr for people, and the guard's own lines also to a file."""
    stream = _OwnStream(sys.stdout if as_json else sys.stderr)
    handlers: list[logging.Handler] = [stream, *([] if path is None else [_own_file(path)])]
    for handler in handlers:
        handler.setFormatter(_JsonLines() if as_json else _Lines("%(asctime)s %(message)s"))
    logger = logging.getLogger("lrdp")
    logger.handlers[:] = handlers
    logger.propagate = False
    logger.setLevel(logging.INFO)


def _own_file(path: Path) -> logging.Handler:
    try:
        _require_log(path)
        handler = _OwnFile(path, encoding="utf-8")
    except OSError as problem:
        raise InvalidInput(f"the log {path} cannot be written: {problem.strerror}; nothing was opened.") from None
    handler.place = str(path)
    handler.addFilter(lambda record: record.name == GUARD_LOG.name and not record.exc_info)
    return handler


def _require_log(path: Path) -> None:
    """A slip of the hand appends to no other file: each line of a log begins with its time."""
    if path.is_fifo():
        raise OSError(errno.EINVAL, "a pipe without a reader would hold up the guard")
    if path.is_file():
        with files.opened(path) as file:
            begins = file.read(_LONGEST_TIME)
        if begins and not _TIMED.match(begins):
            raise OSError(errno.EINVAL, "what is there is not a guard's log")


class _Forgiving(logging.Handler):
    """What cannot be written ends no guard: people are told once, and again if it could be in between."""

    place = "standard output"
    _failing = _told = False

    def emit(self, record: logging.LogRecord) -> None:
        self._failing = False
        try:
            super().emit(record)
        except OSError:  # of a file that was moved away and cannot be made again
            self.handleError(record)
        self._told = self._failing

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 — logging's name
        problem = sys.exception()
        reason = problem.__cause__ if isinstance(problem, InvalidInput) else problem
        if not isinstance(reason, OSError):
            super().handleError(record)
            return
        self._failing = True
        if not self._told:
            say(
                f"The log cannot be written to {self.place}: {reason.strerror}; the guard goes on, and lines "
                f"are missing there."
            )


class _OwnStream(_Forgiving, logging.StreamHandler[TextIO]):
    """Standard output or standard error."""


class _OwnFile(_Forgiving, WatchedFileHandler):
    """For the owner alone, and made again if somebody moved it away; holds the guard's own lines.

    Why something failed is on the other stream only: an exception's text may quote a record.
    """

    def _open(self) -> TextIOWrapper:
        return open(
            self.baseFilename, "a", encoding=self.encoding, opener=lambda path, flags: os.open(path, flags, 0o600)
        )


class _Lines(logging.Formatter):
    """For people: the time in UTC; what a peer sent is made visible, and a traceback keeps its lines."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — logging's name
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(map(visible, super().formatException(ei).split("\n")))


class _JsonLines(logging.Formatter):
    """What happened, as one object: its sentence, and its figures where it has some."""

    def format(self, record: logging.LogRecord) -> str:
        figures = {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        line = {"time": record.created, "level": record.levelname.lower(), "message": record.getMessage(), **figures}
        return json.dumps({**line, "process": os.getpid()})
