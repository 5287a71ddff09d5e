"""Frames over a Unix socket, between the app that a server ships and the guard: lengths first, and nothing pickled."""

from __future__ import annotations

import errno
import grp
import os
import signal
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from lrdp.errors import InvalidInput
from lrdp.federation.wire.frames import MOST_BODIES, Frame, admit

LONGEST_PATH: Final = 107
_MAGIC: Final = b"lrdp-guard/1\n"
_WAITING_PEERS: Final = 64
_AT_FIRST: Final = 1 << 20
_PROBE_SECONDS: Final = 5.0


def send(connection: socket.socket, given: Frame, seconds: float) -> None:
    """Write a frame; raises OSError if the peer does not take it in time."""
    parts = (given.prefix, *given.bodies)
    connection.settimeout(seconds)
    connection.sendall(_MAGIC + bytes([len(parts)]) + struct.pack(f">{len(parts)}Q", *map(len, parts)))
    for part in parts:
        connection.sendall(part)


def receive(connection: socket.socket, most: int, seconds: float) -> Frame:
    """Read a frame with at most ``most`` bytes of vectors, within ``seconds`` in all.

    Raises:
        InvalidInput: for bytes that are not a frame, and for too many of them, before any part is read or held.
        OSError: if the peer breaks off, or takes too long.
    """
    deadline = time.monotonic() + seconds
    *magic, count = _exactly(connection, len(_MAGIC) + 1, deadline)
    if bytes(magic) != _MAGIC or not 1 <= count <= 1 + MOST_BODIES:
        raise InvalidInput("the bytes are not a frame: they come from other software, or another version of it.")
    sizes = struct.unpack(f">{count}Q", _exactly(connection, 8 * count, deadline))
    admit(sizes, most)
    prefix, *bodies = [_exactly(connection, size, deadline) for size in sizes]
    return Frame(bytes(prefix), tuple(bodies))


def _exactly(connection: socket.socket, size: int, deadline: float) -> memoryview:
    buffer = bytearray(min(size, _AT_FIRST))
    filled = 0
    while filled < size:
        if filled == len(buffer):  # a length is a promise: as much again as has come is held, and no more
            buffer += bytes(min(filled, size - filled))
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        with memoryview(buffer)[filled:] as room:
            received = connection.recv_into(room)
        if not received:
            raise ConnectionResetError(errno.ECONNRESET, "the peer closed the connection before its frame was complete")
        filled += received
    return memoryview(buffer).toreadonly()


def connected(path: str, seconds: float) -> socket.socket:
    """A connection to the guard at ``path``; raises OSError where none listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def listening(path: Path, group: str | None = None) -> Iterator[socket.socket]:
    """A socket at ``path`` for its owner alone, or for a group too; it is removed when the block ends."""
    number = _group_number(group)
    _make_way(path)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        # Made for the owner alone: there is no moment at which others could connect.
        umask = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        except OSError as problem:
            raise InvalidInput(f"no socket can be made at {path}: {problem.strerror or problem}.") from None
        finally:
            os.umask(umask)
        made = path.lstat()
        try:
            _share(path, number)
            listener.listen(_WAITING_PEERS)
            yield listener
        finally:
            _remove(path, made)


def _group_number(group: str | None) -> int | None:
    try:
        return None if group is None else grp.getgrnam(group).gr_gid
    except KeyError:
        raise InvalidInput(f"there is no group {group!r}: name the one that the SuperNode's user is in.") from None


def _make_way(path: Path) -> None:
    """Refuse a path that is too long or taken; remove what a guard that was killed left behind."""
    size = len(os.fsencode(path))
    if size > LONGEST_PATH:
        raise InvalidInput(
            f"a socket's path has at most {LONGEST_PATH} bytes, {path} has {size}: choose a shorter one, as in "
            f"/run/lrdp/guard.sock."
        )
    try:
        there = path.lstat()
    except FileNotFoundError:
        return
    except OSError as problem:
        raise InvalidInput(f"no socket can be made at {path}: {problem.strerror}.") from None
    if not stat.S_ISSOCK(there.st_mode):
        raise InvalidInput(f"{path} is there already and is not a socket: it is not touched; choose another path.")
    try:
        connected(os.fspath(path), _PROBE_SECONDS).close()
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
        return
    except OSError as problem:
        raise InvalidInput(f"{path} is in use ({problem.strerror or problem}): choose another path.") from None
    raise InvalidInput(f"a guard listens at {path} already: stop it first, or choose another path.")


def _share(path: Path, group: int | None) -> None:
    if group is None:
        return
    try:
        os.chown(path, -1, group)
        path.chmod(0o660)
    except OSError as problem:
        raise InvalidInput(
            f"{path} cannot be shared with the group ({problem.strerror}): the guard's user must be in it."
        ) from None


def _remove(path: Path, made: os.stat_result) -> None:
    """Remove the socket, unless another guard has taken its place meanwhile."""
    try:
        found = path.lstat()
    except OSError:
        return
    if (found.st_dev, found.st_ino) == (made.st_dev, made.st_ino):
        path.unlink(missing_ok=True)


@contextmanager
def told_to_stop() -> Iterator[socket.socket]:
    """A socket that is readable once SIGTERM or SIGINT came."""
    told, wake = socket.socketpair()
    wake.setblocking(False)
    with closing(told), closing(wake):
        handlers = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGTERM, signal.SIGINT)}
        before = signal.set_wakeup_fd(wake.fileno())
        try:
            yield told
        finally:
            signal.set_wakeup_fd(before)
            for each, handler in handlers.items():
                signal.signal(each, handler)
