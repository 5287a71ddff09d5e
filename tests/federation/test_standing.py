"""Where a client stands: the same after any restart, whoever wrote it, and never changed behind a holder's back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from integrity.parties import Federation, conclude, federation, identity, play_out, stage
from lrdp.federation.standing import Standing
from lrdp.integrity import states
from lrdp.integrity.session import Method

WHO = identity("c001")


def states_of_rounds(world: Federation, rounds: int) -> Iterator[states.ClientState]:
    """What one client goes through: committed, tagged, ready, and again."""
    for _ in range(rounds):
        scene = stage(world)
        played = play_out(scene)
        yield from (scene.committed[WHO.name], played.tagged[WHO.name], played.ready[WHO.name])
        conclude(scene, played)


def same(found: states.ClientState | None, saved: states.ClientState) -> bool:
    if found is None or states.encode_client(found) != states.encode_client(saved):
        return False
    ours, theirs = states.client_vectors(found), states.client_vectors(saved)
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("method", list(Method))
def test_every_state_comes_back_in_this_process_and_in_another(tmp_path: Path, method: Method) -> None:
    here = Standing(tmp_path)
    for state in states_of_rounds(federation(3, method=method), 3):
        with here.locked():
            here.save(state)
        assert same(here.load(WHO), state)
        assert same(Standing(tmp_path).load(WHO), state)
    assert len(list(tmp_path.glob("*.npy"))) <= 8  # the four of the longest state, twice


def test_what_another_process_saved_is_seen(tmp_path: Path) -> None:
    processes = [Standing(tmp_path) for _ in range(3)]
    for number, state in enumerate(states_of_rounds(federation(3), 4)):
        with processes[number % 3].locked():
            processes[number % 3].save(state)
        assert all(same(one.load(WHO), state) for one in processes)


def test_a_living_process_does_not_check_again_what_it_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = states.decode_client
    monkeypatch.setattr(states, "decode_client", lambda data, *more: decoded.append(data) or decode(data, *more))
    here, other = Standing(tmp_path), Standing(tmp_path)
    for state in states_of_rounds(federation(3), 2):
        here.save(state)
        here.load(WHO)
    assert decoded == []
    other.load(WHO)
    assert len(decoded) == 1  # control: another process must


def test_a_vector_that_somebody_holds_is_not_written_over(tmp_path: Path) -> None:
    here, held = Standing(tmp_path), []
    for state in states_of_rounds(federation(3), 4):
        with here.locked():
            here.save(state)
        found = here.load(WHO)
        assert found is not None
        part = next(iter(states.client_vectors(found).values()))[5:]  # a view, the vector itself is let go
        held.append((part, part.copy()))
    assert all(np.array_equal(part, before) for part, before in held)
    assert len(list(tmp_path.glob("*.npy"))) > 8  # control: each model that is held keeps its file


def test_damage_is_not_believed_and_nothing_breaks(tmp_path: Path) -> None:
    *_, state = states_of_rounds(federation(3), 1)
    Standing(tmp_path).save(state)
    vector, saved = next(tmp_path.glob("*.npy")), (tmp_path / "state").read_bytes()
    whole = vector.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        vector.write_bytes(damaged)
        assert Standing(tmp_path).load(WHO) is None
    vector.write_bytes(whole)
    assert Standing(tmp_path).load(identity("c002")) is None
    here = Standing(tmp_path)
    assert same(here.load(WHO), state)
    for damaged in (b"", b"\x05abc", b"\xff" * 50, saved[:-1], saved + b"\x00"):
        (tmp_path / "state").write_bytes(damaged)
        assert here.load(WHO) is None
        assert here.agreed() is None
        assert here.waiting() == (0, 0)
    here.save(state)
    assert same(Standing(tmp_path).load(WHO), state)


def test_another_session_starts_with_nothing(tmp_path: Path) -> None:
    here = Standing(tmp_path)
    *_, state = states_of_rounds(federation(3), 1)
    here.save(state)
    here.agree(b"another")
    assert here.load(WHO) is None
    assert list(tmp_path.glob("*.npy")) == []
    here.save(state)
    assert same(Standing(tmp_path).load(WHO), state)
