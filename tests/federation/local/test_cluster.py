"""Simulations on several machines: one folder for all, and proof of it before anything is spent."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from federation.ray_nodes import two_nodes
from lrdp.commands import run
from lrdp.errors import InvalidInput
from lrdp.federation import Consortium
from lrdp.federation.local.cluster import MadeAtMeetingPlace, MeetingPlace, joined, meeting_place

CONFIRM = """
import sys
from pathlib import Path
from lrdp.errors import InvalidInput
from lrdp.federation.local.cluster import MeetingPlace
try:
    print(MeetingPlace(folder=Path(sys.argv[1]), word=sys.argv[2]).confirm())
except InvalidInput as refused:
    print("refused:", refused)
"""


def elsewhere(folder, word):
    """What another process finds there."""
    words = [sys.executable, "-c", CONFIRM, str(folder), word]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_another_process_finds_the_word_and_is_kept_out_by_both_locks(tmp_path):
    with meeting_place(tmp_path) as place:
        assert not elsewhere(tmp_path, place.word).startswith("refused")
    assert list(tmp_path.iterdir()) == []


def test_a_copy_of_the_folder_is_refused_for_nobody_holds_its_locks(tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    with meeting_place(tmp_path / "here") as place:
        for path in place.folder.iterdir():
            (copy / path.name).write_bytes(path.read_bytes())
        assert "locks (flock)" in elsewhere(copy, place.word)
        assert "two budgets" in elsewhere(copy, place.word)


def test_a_folder_of_the_same_name_and_none_at_all_are_refused(tmp_path):
    with meeting_place(tmp_path) as place:
        assert "another folder" in elsewhere(tmp_path, "0" * len(place.word))
        assert "cannot be read" in elsewhere(tmp_path / "none", place.word)


def test_a_process_that_cannot_confirm_the_place_makes_no_app(tmp_path):
    made: list[object] = []
    nowhere = MeetingPlace(folder=tmp_path, word="never written")
    with pytest.raises(InvalidInput, match="nothing was run or spent"):
        MadeAtMeetingPlace(
            recipe=made.append,  # type: ignore[arg-type]
            place=nowhere,
        )({"partition-id": 0})
    assert made == []


@pytest.fixture
def short():
    """A folder with a short name: Ray's sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="lrdp-", ignore_cleanup_errors=True) as made:
        yield Path(made).resolve()


@pytest.fixture
def port():
    with closing(socket.create_server(("127.0.0.1", 0))) as held:
        return held.getsockname()[1]


def ended(environment, *words):
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "PYTHONPATH": path},
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_both_nodes_of_a_cluster_train_and_every_round_is_verified(short, port):
    with two_nodes(short, port) as environment:
        ran = ended(environment, "federation.ray_nodes", f"127.0.0.1:{port}", short / "run", short / "noted")
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert summary["rounds_verified"] == 3
    asked = [path.name.split("-") for path in (short / "noted").iterdir()]
    assert len({node for node, _ in asked}) == 2
    assert {client for _, client in asked} == set(map(str, range(6)))
    # One ledger each, wherever its client was asked: a charge for each round that it took part in, and for a lost one.
    assert all(client["charges"] == client["rounds"] + client["lost"] for client in summary["clients"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process mounts of its own")
def test_a_node_with_a_folder_of_its_own_is_refused_before_anything_is_spent(short, port):
    (short / "runs").mkdir()
    hidden = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {short}/runs && exec "$@"', "sh"]
    new = short / "runs" / "new"
    with two_nodes(short, port, hidden) as environment:
        ran = ended(
            environment,
            *f"lrdp run --json --clients 3 --rounds 1 --folder {new} --ray-address 127.0.0.1:{port}".split(),
        )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "cannot be read there" in ran.stderr
    assert "nothing was run or spent" in ran.stderr
    with Consortium(folder=new).client("hospital-a").ledger() as ledger:
        assert ledger.books.charges.states == {}


def test_where_no_cluster_is_it_says_so_in_one_sentence(port):
    for address in (f"127.0.0.1:{port}", "nowhere", "127.0.0.1:99999999"):
        with (
            pytest.raises(InvalidInput, match=f"no Ray cluster can be joined at {address}") as refused,
            joined(address),
        ):
            pass
        assert "\n" not in str(refused.value)


def test_an_address_without_ray_is_refused():
    with pytest.raises(InvalidInput, match="--ray-address auto needs --engine ray, got in-process"):
        run._engine(run.Venue.IN_PROCESS, "auto")
