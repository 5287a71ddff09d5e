"""The guard: the same rounds through a socket, whatever else comes through it, and a clean end."""

from __future__ import annotations

import json
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from federation.guards import guarding, running, site
from federation.hostile import HONEST, VICTIM, Stage, ordering, pickled, raw_order, stage
from federation.worlds import model, records, reopened, world
from lrdp.federation import ExactRounds, LocalTask, Node, SketchRounds, guarded_client_app
from lrdp.federation.client.forwarding import forwarded
from lrdp.federation.client.guard import Ward, inspected
from lrdp.federation.wire.frames import MOST_PREFIX_BYTES, Frame
from lrdp.federation.wire.questions import Contributed, Decline, Here, read_message, to_frame
from lrdp.federation.wire.sockets import connected, listening, receive, send
from lrdp.ledger import Scheme
from lrdp.training import CrossEntropy

MAGIC = b"lrdp-guard/1\n"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Path]]:
    """Three hospitals, each behind a guard of its own; the path is that of the victim's socket."""
    folder = tmp_path_factory.mktemp("guarded")
    made = stage(folder, max_bytes="4096")
    app = guarded_client_app()
    with ExitStack() as guards:
        for number, name in enumerate(made.names):
            path = folder / f"{number}.sock"
            guards.enter_context(guarding(made.world.consortium.client(name), path, number, patience=0.5))
            made.world.grid.nodes[1 + number] = Node(app, {"guard": str(path)})  # type: ignore[index]
        yield made, folder / "0.sock"
        made.fresh().honest_round()


@pytest.mark.parametrize(
    ("policies", "rounds"),
    [(Scheme.SKETCH, SketchRounds()), pytest.param(Scheme.EXACT, ExactRounds(), marks=pytest.mark.slow)],
    ids=["in the clear", "masked"],
)
def test_rounds_run_verified_and_paid_through_guards(
    tmp_path: Path, policies: Scheme, rounds: SketchRounds | ExactRounds
) -> None:
    made, app = world(tmp_path, 3, scheme=policies), guarded_client_app()
    with ExitStack() as guards:
        for number, name in enumerate(made.names):
            path = tmp_path / f"{number}.sock"
            guards.enter_context(guarding(made.consortium.client(name), path, number))
            made.node(name).app, made.node(name).settings = app, {"guard": str(path)}
        made.run(3, scheme=rounds)
    assert [report.verified for report in made.reports] == [True] * 3
    assert all(made.books(name).charges.steps == 9 for name in made.names)
    assert not list(tmp_path.glob("*.sock")), "a socket goes with its guard"


ATTACKS: list[tuple[bytes, str]] = [
    (raw_order(noise_multiplier=0.9), "noise"),
    (raw_order(steps=1000), "steps"),
    (raw_order(batch_size=9), "batch-size"),
    (raw_order(clip_norm=2.0), "clip-norm"),
    (raw_order(metrics=["correct"]), "metrics"),
    (b"{", "invalid"),
]


@pytest.mark.parametrize(("order", "code"), ATTACKS)
def test_what_the_policy_forbids_is_refused_behind_the_socket_too(
    guarded: tuple[Stage, Path], order: bytes, code: str
) -> None:
    made, _ = guarded
    made.greet()
    before = made.account()
    assert made.ask(ordering(made.invitation(), order)) == Decline(code=code)
    assert made.account() == before


def _prefix(*sizes: int, magic: bytes = MAGIC) -> bytes:
    return magic + bytes([len(sizes)]) + struct.pack(f">{len(sizes)}Q", *sizes)


MOST = 2 * 4096
MALFORMED: dict[str, bytes] = {
    "no frame at all": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another version": _prefix(3, magic=b"lrdp-guard/9\n") + b"abc",
    "no parts": MAGIC + b"\0",
    "too many parts": _prefix(*[0] * 6),
    "a prefix over the cap": _prefix(MOST_PREFIX_BYTES + 1),
    "a vector over the cap": _prefix(8, MOST + 1),
    "vectors over the cap in all": _prefix(8, MOST, 1),
    "more than there are numbers": _prefix(2**64 - 1, 2**64 - 1),
    "an empty frame": _prefix(0),
    "random bytes": _prefix(40) + bytes(range(40)),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_bytes_are_declined_unread_and_the_guard_goes_on(guarded: tuple[Stage, Path], data: bytes) -> None:
    made, path = guarded
    before = made.account()
    with closing(connected(str(path), 5)) as peer:
        peer.sendall(data)
        answer = read_message(receive(peer, 1000, 5))
    assert isinstance(answer, Decline)
    assert answer.code in ("invalid", "malformed")
    assert made.account() == before
    assert isinstance(_hello(made), Here)


def _hello(made: Stage) -> object:
    return made.ask(made.coordinator.hello)


def _silent(_peer: socket.socket) -> None:
    """Says nothing."""


def _half(peer: socket.socket) -> None:
    peer.sendall(_prefix(4000) + b"x" * 100)


def _gone(peer: socket.socket) -> None:
    peer.sendall(_prefix(4000)[:5])
    peer.close()


@pytest.mark.parametrize("behave", [_silent, _half, _gone])
def test_a_peer_that_is_stuck_or_gone_holds_nobody_up_for_long(
    guarded: tuple[Stage, Path], behave: Callable[[socket.socket], None]
) -> None:
    made, path = guarded
    with closing(connected(str(path), 5)) as stuck:
        behave(stuck)
        assert isinstance(_hello(made), Here)  # after the stuck one's half second


def test_a_peer_that_never_fetches_its_answer_has_paid_and_gets_the_same_later(tmp_path: Path) -> None:
    made = stage(tmp_path)
    path = tmp_path / "0.sock"
    with guarding(made.world.consortium.client(VICTIM), path):
        made.world.grid.nodes[1] = Node(guarded_client_app(str(path)))  # type: ignore[index]
        made.greet()
        work = made.invitation()
        with closing(connected(str(path), 5)) as leaving:
            send(leaving, to_frame(work), 5)
        first, second = made.ask(work), made.ask(work)
    assert isinstance(first, Contributed)
    assert isinstance(second, Contributed)
    assert bytes(first.values or b"") == bytes(second.values or b"")
    assert made.account()[:2] == (1, HONEST.steps)


def test_a_guard_says_how_many_paid_replies_were_not_fetched(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.greet()
    ward = Ward(
        home=made.world.consortium.client(VICTIM),
        task=LocalTask(model=model, dataset=records, loss=CrossEntropy(classes=2)),
        settings={"partition-id": 0},
    )
    assert inspected(ward)[1].unsent == 0
    made.ask(made.coordinator.order_ahead(VICTIM, HONEST))  # it waits for its round
    assert inspected(ward)[1].unsent == 1


def test_a_frame_above_the_cap_is_answered_though_it_was_not_taken(guarded: tuple[Stage, Path]) -> None:
    _, path = guarded
    answer = read_message(forwarded(Frame(b"x" * 100, (bytes(MOST + 1),)), str(path)))
    assert answer == Decline(code="invalid")


def test_a_message_that_memory_does_not_suffice_for_does_not_end_the_guard(
    guarded: tuple[Stage, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, path = guarded

    def out_of_memory(*_: object) -> Frame:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr("lrdp.federation.client.guard.receive", out_of_memory)
        assert read_message(forwarded(Frame(b"x"), str(path))) == Decline(code="failed")
    assert isinstance(_hello(made), Here)


def test_an_app_that_trains_in_its_own_process_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world(tmp_path, 3)
    reopened(tmp_path, 3).run(1)
    (line,) = [record for record in caplog.records if "trains in its own process" in record.getMessage()]
    assert line.levelname == "WARNING"
    assert "lrdp guard" in line.getMessage()


def test_no_pickle_is_loaded_from_the_socket(guarded: tuple[Stage, Path], tmp_path: Path) -> None:
    _, path = guarded
    canary = tmp_path / "canary"
    payload = pickled(canary)
    assert isinstance(read_message(forwarded(Frame(payload, (payload,)), str(path))), Decline)
    with closing(connected(str(path), 5)) as peer:
        peer.sendall(struct.pack(">i", len(payload)) + payload)  # as multiprocessing would send it
        assert isinstance(read_message(receive(peer, 1000, 5)), Decline)
    assert not canary.exists()


@pytest.mark.parametrize("settings", [{}, {"guard": "/nowhere/guard.sock"}, {"guard": 7}])
def test_without_a_guard_the_server_is_told_so_and_the_log_says_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, str]
) -> None:
    made = stage(tmp_path)
    made.world.grid.nodes[1] = Node(guarded_client_app(), settings)  # type: ignore[index]
    caplog.clear()
    assert made.ask(made.coordinator.hello) == Decline(code="no-guard")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "lrdp.client"]
    assert "lrdp guard" in line or "--node-config" in line


def test_the_app_that_forwards_loads_neither_torch_nor_data_code() -> None:
    check = (
        "import sys; from lrdp.federation import guarded_client_app; guarded_client_app(); "
        "print(sorted({'torch', 'sqlite3', 'scipy', 'lrdp.training', 'lrdp.ledger'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_guard_loads_no_flower() -> None:
    check = "import sys, lrdp.federation.client.guard, lrdp.federation.client.trusted; print('flwr' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_a_socket_is_its_owners_unless_a_group_is_named(tmp_path: Path) -> None:
    path = tmp_path / "guard.sock"
    with listening(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with listening(path, group=_own_group()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert not path.exists()


def _own_group() -> str:
    import grp
    import os

    return grp.getgrgid(os.getgid()).gr_name


def test_as_a_process_it_says_what_it_guards_answers_and_ends_when_told(tmp_path: Path) -> None:
    made = site(tmp_path)
    with running(made.command("--json", "--set", "seed=4")) as (process, line):
        said = json.loads(line)
        assert said["message"] == f"guarding hospital-0: ε 0.00 of 8.0 guaranteed, 6 rounds left, socket {made.socket}"
        assert (said["client"], said["spent"], said["total"]) == ("hospital-0", 0.0, 8.0)
        again = subprocess.run(made.command(), capture_output=True, text=True, check=False)
        assert again.returncode == 2
        words = f"a guard listens at {made.socket} already: stop it first, or choose another path."
        assert again.stderr == f"Error: {words}\n"
        answer = read_message(forwarded(Frame(b"nonsense"), str(made.socket)))
        assert isinstance(answer, Decline)
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    assert not made.socket.exists()
    assert rest[-1] == "Stopped: nothing is open."
    logged = [json.loads(text) for text in rest[:-1]]
    assert logged[-1]["answered"] == f"declined ({answer.code})"


def test_what_a_killed_guard_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "guard.sock"
    with closing(socket.socket(socket.AF_UNIX)) as killed:
        killed.bind(str(path))
    assert path.is_socket()
    with listening(path) as listener, closing(connected(str(path), 5)):
        listener.accept()[0].close()
    assert not path.exists()
