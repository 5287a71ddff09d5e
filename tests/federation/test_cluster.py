"""Simulations on several machines: one folder for all, and proof of it before anything is spent."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from federation.ray_nodes import Noting, two_nodes
from lrdp.errors import InvalidInput
from lrdp.experiments import demo
from lrdp.experiments.story import Story
from lrdp.federation.local.cluster import MadeAtMeetingPlace, MeetingPlace, meeting_place
from lrdp.federation.local.simulation import in_ray_cluster

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
    made = []
    nowhere = MeetingPlace(folder=tmp_path, word="never written")
    with pytest.raises(InvalidInput, match="nothing was run or spent"):
        MadeAtMeetingPlace(recipe=made.append, place=nowhere)({"partition-id": 0})
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


def set_for_this_process(monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_both_nodes_of_a_cluster_train_and_ledgers_and_receipts_hold(short, port, monkeypatch):
    noted, attempts = short / "noted", []
    with two_nodes(short, port) as environment:
        set_for_this_process(monkeypatch, environment)

        def engine(federation):
            noting = Noting(recipe=federation.recipe, folder=noted)
            in_ray_cluster(replace(federation, recipe=noting), address=f"127.0.0.1:{port}")

        story = Story(clients=6, rounds=3, local_steps=1, cheats=False)
        summary = demo.run(story, short / "run", engine, attempts.append)
    assert summary["rounds_verified"] == 3
    nodes = {path.name.split("-")[0] for path in noted.iterdir()}
    assert len(nodes) == 2
    clients = {path.name.split("-")[1] for path in noted.iterdir()}
    assert clients == set(map(str, range(6)))
    assert sum(client["charges"] for client in summary["clients"]) >= 3 * 3


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process mounts of its own")
def test_a_node_with_a_folder_of_its_own_is_refused_before_anything_is_spent(short, port, monkeypatch):
    (short / "run").mkdir()
    hidden = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {short}/run && exec "$@"', "sh"]
    attempts = []
    with two_nodes(short, port, hidden) as environment:
        set_for_this_process(monkeypatch, environment)
        story = Story(clients=3, rounds=1, local_steps=1, cheats=False)
        with pytest.raises(InvalidInput, match=r"cannot be read there.*nothing was run or spent"):
            demo.run(
                story,
                short / "run" / "new",
                lambda federation: in_ray_cluster(federation, address=f"127.0.0.1:{port}"),
                attempts.append,
            )
    assert attempts == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_where_no_cluster_is_the_command_says_so_in_one_sentence(tmp_path, port):
    words = f"run --ray-address 127.0.0.1:{port} --clients 3 --rounds 1 --folder {tmp_path}/new".split()
    ended = subprocess.run([sys.executable, "-m", "lrdp", *words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no Ray cluster can be joined" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_address_without_ray_is_refused(tmp_path):
    words = f"run --ray-address auto --engine in-process --folder {tmp_path}/new".split()
    ended = subprocess.run([sys.executable, "-m", "lrdp", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "--engine ray" in ended.stderr
    assert not (tmp_path / "new").exists()
