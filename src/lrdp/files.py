"""Files: read within limits, and written so that they outlast a power cut.

A path may name anything: a pipe that nobody writes to, a device without an end, a file that grows. So only a regular
file is read, up to a given number of bytes. What is written appears under its name whole or not at all, and once a call
returns it is on disk, its name too; the same holds for a line that is appended. Whatever goes wrong is an OSError whose
``strerror`` says what. No other module opens a file to write to it, except SQLite, logs and the kernel's own files.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

OWNER_ONLY: Final = 0o600
PUBLIC: Final = 0o644
# A pipe without a writer would keep the opening waiting, and a terminal would become the process's own.
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_OVERWRITING: Final = os.O_WRONLY | os.O_CREAT
_APPENDING: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
_POSIX: Final = os.name == "posix"
_PIECE: Final = 1 << 16


# ------------------------------------------------------------------------------------------------------------- reading
def opened(path: Path) -> BinaryIO:
    """A regular file, open for reading; close it."""
    descriptor = os.open(path, _FLAGS)
    try:
        _require_regular(descriptor)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read(path: Path, most: int) -> bytes:
    """All of a regular file of at most ``most`` bytes."""
    with opened(path) as file:
        return _all(file, most)


def read_secret(path: Path, most: int) -> bytes:
    """The same for a file that nobody but its owner may read or write, and whose owner is this user or root."""
    with opened(path) as file:
        _require_private(os.fstat(file.fileno()), path)
        return _all(file, most)


def lines(file: BinaryIO, most: int) -> Iterator[bytes]:
    """Line after line, with its end, each of at most ``most`` bytes."""
    while line := file.readline(most + 1):
        if len(line) > most:
            raise OSError(errno.EFBIG, f"it has a line of more than {most} bytes")
        yield line


def followed(path: Path) -> Path:
    """Where a path leads, links followed; unlike Path.resolve, no error of its own where they go in a circle."""
    return Path(os.path.realpath(path))


def _require_regular(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def _all(file: BinaryIO, most: int) -> bytes:
    # The size is no promise: a file may grow while it is read, and files of /proc say that they are empty.
    size = os.fstat(file.fileno()).st_size
    data = file.read(min(max(size, _PIECE), most) + 1) if size <= most else b""
    if size > most or len(data) > most:
        raise OSError(errno.EFBIG, f"it has {max(size, len(data))} bytes, at most {most} are read")
    return data


def _require_private(status: os.stat_result, path: Path) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if _POSIX and mode & 0o077:
        raise PermissionError(
            errno.EACCES, f"it has mode {mode:o}, so others could use the key, and 600 is the limit: chmod 600 {path}"
        )
    if _POSIX and status.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
        raise PermissionError(
            errno.EACCES, f"it belongs to user {status.st_uid}, who could put another key there: chown it to yourself"
        )


# ------------------------------------------------------------------------------------------------------------- writing
def write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a new file; FileExistsError where there already is one."""
    with creating(path, mode) as file:
        file.write(data)


def replace(path: Path, data: bytes, mode: int) -> None:
    """Write a file in place of what was there."""
    with replacing(path, mode) as file:
        file.write(data)


@contextmanager
def creating(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A new file, which is there once the block ends; FileExistsError where there already is one."""
    with _beside(path, mode, os.link) as file:
        yield file


@contextmanager
def replacing(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A file that takes the place of the file that was there once the block ends; no device and no pipe is replaced."""
    _require_no_device(path)
    with _beside(followed(path), mode, os.replace) as file:
        yield file


def require_replaceable(path: Path) -> None:
    """Raise as ``replacing`` would, and leave what is there as it is."""
    with suppress(_NotNowError), replacing(path, OWNER_ONLY):
        raise _NotNowError


class _NotNowError(Exception):
    """Ends the block of a file that is not to take its place."""


def append(path: Path, line: bytes, mode: int) -> None:
    """Append one line, and its end, whole or not at all; several processes that append take turns.

    What a power cut left of an earlier line stays a line by itself.
    """
    descriptor = os.open(path, _APPENDING, mode)
    try:
        _require_regular(descriptor)
        _lock(descriptor)
        size = os.fstat(descriptor).st_size
        _add(descriptor, size, line + b"\n")
        if size == 0 and _POSIX:
            os.fchmod(descriptor, mode)  # whatever the umask is
    finally:
        os.close(descriptor)
    if size == 0:
        sync_folder(path.parent)


@contextmanager
def overwriting(path: Path) -> Iterator[BinaryIO]:
    """A file for its owner alone, overwritten in place; not atomic, and on disk once the block ends.

    For what is large and checked against a hash when it is read; whoever names it in another file syncs the folder.
    """
    with os.fdopen(os.open(path, _OVERWRITING, OWNER_ONLY), "wb") as file:
        yield file
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one process at a time is in the block; the system takes the lock from a process that is killed."""
    descriptor = os.open(path, _OVERWRITING, OWNER_ONLY)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def locked_at_once(path: Path, mode: int) -> Iterator[None]:
    """The same without waiting: BlockingIOError where another process, or another thread, is in the block."""
    descriptor = os.open(path, _OVERWRITING | getattr(os, "O_NONBLOCK", 0), mode)
    try:
        _lock(descriptor, waiting=False)
        if _POSIX:
            with suppress(PermissionError):  # of a file that somebody else made
                os.fchmod(descriptor, mode)  # whatever the umask is
        try:
            yield
        finally:
            _unlock(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Give a file another name, in place of whatever had that name."""
    source.replace(target)
    sync_folder(target.parent)


def publish(made: Path, path: Path) -> None:
    """Give a file that is on disk a name as well; FileExistsError where something has that name already."""
    os.link(made, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A name is durable only with its folder."""
    if not _POSIX:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _add(descriptor: int, size: int, line: bytes) -> None:
    cut_off = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    rest = memoryview(b"\n" + line if cut_off else line)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, size)
        raise


def _lock(descriptor: int, *, waiting: bool = True) -> None:
    import fcntl  # not on every system, and reading needs none

    fcntl.flock(descriptor, fcntl.LOCK_EX if waiting else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlock(descriptor: int) -> None:
    """Closing would not do where a process that was forked in the block is still there: it has the lock as well."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _require_no_device(path: Path) -> None:
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # what is wrong with a folder, the system says itself
            raise OSError(errno.EINVAL, "it is not a regular file")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors say which file they are about: that of a write to a full disk has no name of its own."""
    try:
        yield
    except OSError as problem:
        problem.filename = problem.filename or str(path)
        raise


@contextmanager
def _beside(path: Path, mode: int, publish: Callable[[str, Path], None]) -> Iterator[BinaryIO]:
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with _named(path), os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if _POSIX:
                os.fchmod(descriptor, mode)  # whatever the umask is
            os.fsync(descriptor)
        publish(made, path)
    finally:
        with suppress(FileNotFoundError):
            Path(made).unlink()
    sync_folder(path.parent)
