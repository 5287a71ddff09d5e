"""Files: nothing is read without an end, and what is called durable is on disk before its name is."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from integrity.parties import federation, identity
from ledger.worlds import POLICY
from lrdp import files
from lrdp.commands.fleet import reports_in
from lrdp.commands.integrity import read_lines
from lrdp.commands.ledger import _read_head
from lrdp.commands.paths import registry_in
from lrdp.errors import InvalidInput, LrdpError
from lrdp.federation.client.standing import Standing
from lrdp.federation.server.archive import Archive
from lrdp.integrity import keys
from lrdp.ledger import SigningKey, read_policy
from lrdp.ledger.export import verify_export
from lrdp.ledger.fleet import FleetBooks
from lrdp.ledger.starting import Home
from lrdp.ledger.store import Store

READERS: dict[str, Callable[[Path], object]] = {
    "policy": read_policy,
    "ledger": Store,
    "ledger or export": verify_export,
    "ledger's key": SigningKey.read,
    "identity": keys.load_identity,
    "registry": registry_in,
    "head": _read_head,
    "receipts": lambda path: list(read_lines(path)),
    "reports": reports_in,
    "fleet": FleetBooks.load,
}


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _loop(path: Path) -> Path:
    path.symlink_to(path)
    return path


def _folder(path: Path) -> Path:
    path.mkdir()
    (path / "another").mkdir()
    return path


NO_FILES: dict[str, Callable[[Path], Path]] = {
    "a pipe without a writer": _pipe,
    "a device without an end": lambda _: Path("/dev/zero"),
    "a link to itself": _loop,
    "a folder": _folder,
    "nothing": lambda path: path,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused_at_once_with_a_sentence(reader: str, kind: str, tmp_path: Path) -> None:
    path = NO_FILES[kind](tmp_path / "given")
    with pytest.raises(LrdpError) as caught:
        READERS[reader](path)
    assert str(caught.value).endswith(".")


def test_a_file_is_read_up_to_its_limit_and_not_beyond(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_bytes(b"x" * 100)
    assert files.read(path, 100) == b"x" * 100
    with pytest.raises(OSError, match="it has 100 bytes, at most 99 are read"):
        files.read(path, 99)
    assert files.read(Path("/proc/self/status"), 1 << 16), "files that say they are empty are read all the same"
    with pytest.raises(OSError, match="at most"):
        files.read(Path("/proc/self/status"), 20)


def test_lines_have_a_limit_each(tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(b"ab\n\ncd")
    with files.opened(tmp_path / "given") as file:
        assert list(files.lines(file, 3)) == [b"ab\n", b"\n", b"cd"]
    with files.opened(tmp_path / "given") as file, pytest.raises(OSError, match="a line of more than 2 bytes"):
        list(files.lines(file, 2))


# ---------------------------------------- keys
def _client_key(path: Path) -> Callable[[], object]:
    SigningKey.generate().write(path)
    return lambda: SigningKey.read(path)


def _identity_key(path: Path) -> Callable[[], object]:
    keys.save_identity(identity("bank"), path)
    return lambda: keys.load_identity(path)


KEYS = {"client.pem, administrator.pem": _client_key, "identity.pem": _identity_key}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o777])
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_that_others_may_use_is_refused_with_what_to_do(kind: str, mode: int, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    read = KEYS[kind](path)
    path.chmod(mode)
    with pytest.raises(InvalidInput, match=rf"mode {mode:o}, .*chmod 600 {path}"):
        read()
    for private in (0o600, 0o400):
        path.chmod(private)
        read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_another_user_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key.pem"
    read = KEYS[kind](path)
    os.chown(path, 4242, 4242)
    read()  # root reads anybody's
    monkeypatch.setattr(os, "geteuid", lambda: 1717)
    with pytest.raises(InvalidInput, match="belongs to user 4242"):
        read()
    os.chown(path, 0, 0)
    read()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_its_owner_s_whatever_the_umask(kind: str, umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        KEYS[kind](tmp_path / "key.pem")()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


# ---------------------------------------- durability
def _policy(folder: Path) -> None:
    files.write_new(Home(folder=folder).policy, POLICY.encode(), files.PUBLIC)


def _heads(folder: Path) -> Callable[[], object]:
    archive = Archive(folder, federation(3, size=5).session)
    return archive.save_heads


def _standing(folder: Path) -> Callable[[], object]:
    standing = Standing(folder)
    return lambda: standing.wait_with(3, 1)


NEW: dict[str, Callable[[Path], object]] = {
    "client.pem": lambda folder: SigningKey.generate().write(folder / "client.pem"),
    "identity.pem": lambda folder: keys.save_identity(identity("bank"), folder / "identity.pem"),
    "policy.toml": _policy,
}
REPLACED: dict[str, Callable[[Path], Callable[[], object]]] = {"heads.json": _heads, "waiting": _standing}


@pytest.mark.parametrize("name", NEW)
def test_a_new_file_is_on_disk_before_its_name_and_its_name_before_the_call_returns(
    name: str, tmp_path: Path, noted: list[str]
) -> None:
    NEW[name](tmp_path)
    assert noted == ["file", "link", "folder"]
    with pytest.raises((InvalidInput, FileExistsError)):
        NEW[name](tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", REPLACED)
def test_a_file_is_replaced_only_by_one_that_is_on_disk(name: str, tmp_path: Path, noted: list[str]) -> None:
    write = REPLACED[name](tmp_path)
    noted.clear()
    write()
    assert noted == ["file", "replace", "folder"]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    """On a disk that is full: in a process of its own, since the limit is a process's."""
    path = tmp_path / "kept"
    files.replace(path, b"before", files.OWNER_ONLY)

    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
        try:
            files.replace(path, bytes(4096), files.OWNER_ONLY)
        except OSError:
            os._exit(7)

    child = os.fork()
    if child == 0:
        write()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_a_process_that_is_killed_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path, size = tmp_path / "kept", 200_000
    code = (
        "import itertools, pathlib; from lrdp import files\n"
        f"path = pathlib.Path({str(path)!r})\n"
        f"for number in itertools.count(1): files.replace(path, bytes([number % 251]) * {size}, 0o600)"
    )
    files.replace(path, bytes(size), files.OWNER_ONLY)
    for wait in (0.3, 0.35, 0.4, 0.45, 0.5):
        writer = subprocess.Popen([sys.executable, "-c", code])
        time.sleep(wait)
        writer.kill()
        writer.wait()
        data = path.read_bytes()
        assert len(data) == size
        assert len(set(data)) == 1


# ---------------------------------------- lines
def test_a_line_is_on_disk_when_the_call_returns_and_a_new_file_s_name_too(tmp_path: Path, noted: list[str]) -> None:
    path = tmp_path / "lines"
    files.append(path, b"one", files.OWNER_ONLY)
    assert noted == ["file", "folder"]
    noted.clear()
    files.append(path, b"two", files.OWNER_ONLY)
    assert noted == ["file"]
    assert path.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == files.OWNER_ONLY


def test_what_a_power_cut_left_of_a_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntw")
    files.append(path, b"three", files.PUBLIC)
    assert path.read_bytes() == b"one\ntw\nthree\n"


def test_a_line_that_does_not_fit_on_the_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    files.append(path, b"one", files.PUBLIC)

    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
        try:
            files.append(path, bytes(4096), files.PUBLIC)
        except OSError:
            os._exit(7)

    child = os.fork()
    if child == 0:
        write()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert path.read_bytes() == b"one\n"


def test_lines_of_several_processes_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    code = (
        "import pathlib, sys; from lrdp import files\n"
        f"for _ in range(20): files.append(pathlib.Path({str(path)!r}), sys.argv[1].encode() * 70_000, 0o600)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, letter]) for letter in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert sorted(path.read_bytes().splitlines()) == [b"a" * 70_000] * 20 + [b"b" * 70_000] * 20


@pytest.mark.timeout(20)
def test_nothing_is_appended_to_a_pipe(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        files.append(_pipe(tmp_path / "pipe"), b"line", files.OWNER_ONLY)


def test_another_name_is_on_disk_when_the_call_returns(tmp_path: Path, noted: list[str]) -> None:
    (tmp_path / "before").write_bytes(b"any")
    files.rename(tmp_path / "before", tmp_path / "after")
    assert noted[-1] == "folder"
    assert (tmp_path / "after").read_bytes() == b"any"
