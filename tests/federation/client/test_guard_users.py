"""The server's app as another user: with the guard running, it can pass messages on and do nothing else.

The hostile process is a plain Python without this library: it tries what any program of that user could.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from federation.guards import guarding
from federation.hostile import VICTIM, Stage, raw_order, stage
from lrdp.federation.wire.questions import Contributed, Decline, read_message, to_frame

NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or "python3"
HOSTILE = r"""
import json, os, socket, struct, sys

folder, sock, guard, question = sys.argv[1], sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4])
got = {}

def attempt(name, action):
    try:
        got[name] = repr(action())[:80]
    except OSError as refused:
        got[name] = "refused: " + type(refused).__name__

def ask():
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(60)
        peer.connect(sock)
        peer.sendall(question)
        peer.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := peer.recv(1 << 16):
            answer += piece
        return answer

def bind():
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(sock)

files = ["policy.toml", "ledger.db", "keys/client.pem", "keys/identity.pem", "keys/administrator.pem", "session/agreed"]
for name in files:
    attempt("read " + name, lambda: open(os.path.join(folder, name), "rb").read(16))
    attempt("write " + name, lambda: open(os.path.join(folder, name), "ab").close())
attempt("list", lambda: os.listdir(folder))
attempt("plant code", lambda: open(os.path.join(folder, "local_task.py"), "w").close())
attempt("open", lambda: os.chmod(folder, 0o777))
attempt("move away", lambda: os.rename(folder, folder + ".old"))
attempt("remove the socket", lambda: os.unlink(sock))
attempt("take the socket's place", bind)
attempt("read the guard's memory", lambda: open(f"/proc/{guard}/mem", "rb").read(1))
attempt("read the guard's environment", lambda: open(f"/proc/{guard}/environ", "rb").read(16))
attempt("follow the guard's files", lambda: os.listdir(f"/proc/{guard}/fd"))
attempt("stop the guard", lambda: os.kill(guard, 9))
try:
    got["asked"] = ask().hex()
except OSError as refused:
    got["asked"] = "refused: " + type(refused).__name__
print(json.dumps(got))
"""


@pytest.fixture
def public(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A consortium below a folder that everybody may enter, which pytest's own are not."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can start a process of another user; run this as root")
    folder = Path(tempfile.mkdtemp(prefix="lrdp-"))
    folder.chmod(0o755)
    yield stage(folder)
    shutil.rmtree(folder)


def _as_nobody(made: Stage, path: Path, question: bytes) -> dict[str, str]:
    folder = made.world.consortium.client(VICTIM).folder
    arguments = [PYTHON, "-I", "-c", HOSTILE, str(folder), str(path), str(os.getpid()), question.hex()]
    ran = subprocess.run(
        arguments, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=True, cwd="/"
    )
    found: dict[str, str] = json.loads(ran.stdout)
    return found


def _framed(made: Stage, order: bytes) -> bytes:
    """Work with this order, as the hostile process writes it to the socket without our code."""
    given = to_frame(made.signed(replace(made.invitation(), order=order)))
    parts = [bytes(part) for part in (given.prefix, *given.bodies)]
    return (
        b"lrdp-guard/1\n" + bytes([len(parts)]) + b"".join(len(p).to_bytes(8, "big") for p in parts) + b"".join(parts)
    )


def _share(path: Path) -> None:
    os.chown(path, -1, NOBODY)
    path.chmod(0o660)


def _answer(reply: str) -> object:
    from lrdp.federation.wire.frames import Frame

    data = bytes.fromhex(reply)
    start = len(b"lrdp-guard/1\n")
    count, start = data[start], start + 1
    sizes = [int.from_bytes(data[start + 8 * n : start + 8 * n + 8], "big") for n in range(count)]
    start += 8 * count
    parts = []
    for size in sizes:
        parts.append(data[start : start + size])
        start += size
    return read_message(Frame(parts[0], tuple(parts[1:])))


def test_another_user_can_pass_messages_on_and_do_nothing_else(public: Stage) -> None:
    home = public.world.consortium.client(VICTIM)
    home.folder.chmod(0o700)
    path = public.world.consortium.folder / "guard.sock"
    public.greet()
    with guarding(home, path):
        _share(path)
        got = _as_nobody(public, path, _framed(public, raw_order(noise_multiplier=0.5)))
        asked = got.pop("asked")
        assert {name for name, outcome in got.items() if not outcome.startswith("refused: ")} == set()
        assert _answer(asked) == Decline(code="noise")
        assert public.account() == (0, 0, 0.0)
        honest = _as_nobody(public, path, _framed(public, raw_order(steps=1)))["asked"]
        assert isinstance(_answer(honest), Contributed), "what the policy allows is all there is to have"
    assert public.account()[:2] == (1, 1)


def test_without_its_group_another_user_cannot_even_connect(public: Stage) -> None:
    home = public.world.consortium.client(VICTIM)
    home.folder.chmod(0o700)
    path = public.world.consortium.folder / "guard.sock"
    public.greet()
    with guarding(home, path):
        assert _as_nobody(public, path, b"")["asked"] == "refused: PermissionError"


def test_control_an_open_folder_does_leak_to_the_same_process(public: Stage) -> None:
    """So it is the folder's mode that keeps it out, and the attempts are real ones."""
    home = public.world.consortium.client(VICTIM)
    public.greet()
    for path in (home.folder, *home.folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    got = _as_nobody(public, public.world.consortium.folder / "guard.sock", b"")
    leaked = {name for name, outcome in got.items() if not outcome.startswith("refused: ")}
    assert {"read policy.toml", "write ledger.db", "read keys/identity.pem", "list", "plant code"} <= leaked
