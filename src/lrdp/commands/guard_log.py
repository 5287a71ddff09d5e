"""What a guard says while it runs: its log, for people or as JSON, and its page of metrics."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.screen import visible

GUARD_LOG: Final = logging.getLogger("lrdp.guard")
ShowLine = Callable[[str], None]
_FIELDS: Final = (
    *("asked", "answered", "seconds", "round", "charged"),
    *("client", "spent", "left", "total", "rounds_left", "socket", "unsent"),
)


@contextmanager
def shown(address: str | None, path: Path | None) -> Iterator[ShowLine]:
    """Where the page's text goes: to a loopback address, to a file, to both or nowhere."""
    from lrdp.federation.wire.metrics_page import MetricsPage

    page = None if address is None else MetricsPage(address)

    def show(text: str) -> None:
        if page is not None:
            page.text = text
        if path is not None:
            _write_page(path, text)

    try:
        show("")
        yield show
    finally:
        if page is not None:
            page.close()


def _write_page(path: Path, text: str) -> None:
    """Readable by everybody who may enter its folder."""
    try:
        files.replace(path, text.encode(), files.PUBLIC)
    except OSError as problem:
        raise InvalidInput(f"metrics cannot be written to {path}: {problem.strerror}.") from None


def log_to(as_json: bool, path: Path | None) -> None:
    """Everything to stdout as JSON or to stderr for people, and the guard's own lines also to a file."""
    stream = logging.StreamHandler(sys.stdout if as_json else sys.stderr)
    handlers: list[logging.Handler] = [stream, *([] if path is None else [_own_file(path)])]
    for handler in handlers:
        handler.setFormatter(_JsonLines() if as_json else _Lines("%(asctime)s %(message)s"))
    logger = logging.getLogger("lrdp")
    logger.handlers[:] = handlers
    logger.propagate = False
    logger.setLevel(logging.INFO)


def _own_file(path: Path) -> logging.Handler:
    try:
        handler = _OwnFile(path, encoding="utf-8")
    except OSError as problem:
        raise InvalidInput(f"the log {path} cannot be written: {problem.strerror}; nothing was opened.") from None
    handler.addFilter(lambda record: record.name == GUARD_LOG.name and not record.exc_info)
    return handler


class _OwnFile(WatchedFileHandler):
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
