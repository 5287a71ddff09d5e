"""Where a client stands: the same after any restart, whoever wrote it, and never changed behind a holder's back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from integrity.parties import Federation, conclude, federation, identity, play_out, stage
from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation.client.standing import LeftSession, Standing
from lrdp.federation.client.state_file import _SAVED, _SAVED_V1, Saved
from lrdp.federation.wire.questions import Hello, to_frame
from lrdp.integrity import states
from lrdp.integrity.session import ProofMethod, Session

WHO = identity("c001")


def greeting(session: Session) -> tuple[bytes, bytes]:
    """What a client is told to enter a session: its digest, and the proposal."""
    return session.digest, to_frame(Hello(session=session.encode(), nonce=bytes(32), layout=b"any")).prefix


FIRST, SECOND, THIRD = (greeting(federation(3, session=name).session) for name in ("first", "second", "third"))


def entered(folder: Path) -> Standing:
    """A client in the first session."""
    here = Standing(folder)
    if not here.is_in(FIRST[0]):
        here.enter(*FIRST)
    return here


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


@pytest.mark.parametrize("method", list(ProofMethod))
def test_every_state_comes_back_in_this_process_and_in_another(tmp_path: Path, method: ProofMethod) -> None:
    here = entered(tmp_path)
    for state in states_of_rounds(federation(3, method=method), 3):
        with here.locked():
            here.save(state)
        assert same(here.load(WHO), state)
        assert same(Standing(tmp_path).load(WHO), state)
    assert len(list(tmp_path.glob("*.npy"))) <= 8  # the four of the longest state, twice


def test_what_another_process_saved_is_seen(tmp_path: Path) -> None:
    processes = [entered(tmp_path) for _ in range(3)]
    for number, state in enumerate(states_of_rounds(federation(3), 4)):
        with processes[number % 3].locked():
            processes[number % 3].save(state)
        assert all(same(one.load(WHO), state) for one in processes)


def test_a_living_process_does_not_check_again_what_it_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = states.decode_client
    monkeypatch.setattr(states, "decode_client", lambda data, *more: decoded.append(data) or decode(data, *more))
    here, other = entered(tmp_path), Standing(tmp_path)
    for state in states_of_rounds(federation(3), 2):
        here.save(state)
        here.load(WHO)
    assert decoded == []
    other.load(WHO)
    assert len(decoded) == 1  # control: another process must


def test_a_vector_that_somebody_holds_is_not_written_over(tmp_path: Path) -> None:
    here, held = entered(tmp_path), []
    for state in states_of_rounds(federation(3), 4):
        with here.locked():
            here.save(state)
        found = here.load(WHO)
        assert found is not None
        part = next(iter(states.client_vectors(found).values()))[5:]  # a view, the vector itself is let go
        held.append((part, part.copy()))
    assert all(np.array_equal(part, before) for part, before in held)
    assert len(list(tmp_path.glob("*.npy"))) > 8  # control: each model that is held keeps its file


def test_a_state_names_no_vector_that_a_power_failure_could_take(tmp_path: Path, noted: list[str]) -> None:
    """The ACCEPT is saved with the state, and without its vectors a client has neither."""
    here = entered(tmp_path)
    for state in states_of_rounds(federation(3), 3):
        before = {(path, path.stat().st_mtime_ns) for path in tmp_path.glob("*.npy")}
        noted.clear()
        here.save(state)
        written = {(path, path.stat().st_mtime_ns) for path in tmp_path.glob("*.npy")} - before
        assert written
        assert noted[: noted.index("replace")] == ["file"] * (len(written) + 1), "each vector, and the state itself"


def test_a_state_is_whole_until_the_next_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed once the vectors of the next are written: those of the last one still lie in other files."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    last = None
    for state in states_of_rounds(federation(3), 3):
        here = Standing(tmp_path) if last else entered(tmp_path)
        here.load(WHO)
        with monkeypatch.context() as dying:
            dying.setattr(files, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                here.save(state)
        assert last is None or same(Standing(tmp_path).load(WHO), last)
        here = Standing(tmp_path)
        here.load(WHO)
        here.save(state)
        last = state


def test_damage_is_not_believed_and_nothing_breaks(tmp_path: Path) -> None:
    *_, state = states_of_rounds(federation(3), 1)
    entered(tmp_path).save(state)
    vector, saved = next(tmp_path.glob("*.npy")), (tmp_path / "state").read_bytes()
    whole = vector.read_bytes()
    for damaged in (b"", whole[:40], b"PK\x03\x04" + whole[4:], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        vector.write_bytes(damaged)
        assert Standing(tmp_path).load(WHO) is None
    vector.write_bytes(whole)
    assert Standing(tmp_path).load(identity("c002")) is None
    here = Standing(tmp_path)
    assert same(here.load(WHO), state)
    for damaged in (b"", b"\x05abc", b"\xff" * 50, saved[:-1], saved + b"\x00"):
        (tmp_path / "state").write_bytes(damaged)
        assert here.load(WHO) is None
        assert here.waiting() == (0, 0)
    here.save(state)
    assert same(Standing(tmp_path).load(WHO), state)


def test_another_session_starts_with_nothing(tmp_path: Path) -> None:
    here = entered(tmp_path)
    *_, state = states_of_rounds(federation(3), 1)
    here.save(state)
    here.enter(*SECOND)
    assert here.load(WHO) is None
    assert list(tmp_path.glob("*.npy")) == []
    here.save(state)
    assert same(Standing(tmp_path).load(WHO), state)


# ---------------------------------------- sessions that were left
def test_a_session_that_was_left_is_never_entered_again(tmp_path: Path) -> None:
    here = Standing(tmp_path)
    for known, greeted in enumerate((FIRST, SECOND, THIRD)):
        here.enter(*greeted)
        for left in (FIRST, SECOND, THIRD)[:known]:
            for process in (here, Standing(tmp_path)):  # also after a restart
                with pytest.raises(LeftSession):
                    process.enter(*left)
                assert process.is_in(greeted[0])
    assert (tmp_path / "left").read_bytes() == b"\x07left/v1" + FIRST[0] + SECOND[0]  # 32 bytes each


def test_where_it_is_not_certain_which_sessions_were_left_none_is_entered(tmp_path: Path) -> None:
    """The control is the file as it was written."""
    here = entered(tmp_path)
    here.enter(*SECOND)
    whole = (tmp_path / "left").read_bytes()
    for damaged in (whole[:-1], whole + b"\0", whole[8:], b"\x07left/v2" + FIRST[0], b"\x07left"):
        (tmp_path / "left").write_bytes(damaged)
        with pytest.raises(InvalidInput, match="left"):
            here.enter(*THIRD)
        assert here.is_in(SECOND[0])
    (tmp_path / "left").write_bytes(whole)
    here.enter(*THIRD)
    assert here.is_in(THIRD[0])


def test_the_files_of_a_client_say_their_version(tmp_path: Path) -> None:
    """By hand: whoever writes them another way must name them otherwise."""
    here = entered(tmp_path)
    *_, state = states_of_rounds(federation(3), 1)
    here.save(state)
    here.wait_with(258, 3)
    assert (tmp_path / "waiting").read_bytes() == (b"\x0awaiting/v1\x08\x02\x01\0\0\0\0\0\0\x08\x03\0\0\0\0\0\0\0")
    assert here.waiting() == (258, 3)
    assert (tmp_path / "state").read_bytes().startswith(b"\x0bstanding/v2")
    (tmp_path / "waiting").write_bytes(b"\x0awaiting/v2" + bytes(18))
    with pytest.raises(InvalidInput):
        here.waiting()


def test_a_state_of_the_version_before_is_taken_up_with_its_accept(tmp_path: Path) -> None:
    """It lay in a file of its own."""
    *_, state = states_of_rounds(federation(3), 1)
    entered(tmp_path).save(state)
    now = Saved(**_SAVED.decode((tmp_path / "state").read_bytes()))
    (tmp_path / "state").write_bytes(_SAVED_V1.encode(now))
    (tmp_path / "accepted").write_bytes(b"the word")
    here = Standing(tmp_path)
    assert same(here.load(WHO), state)
    assert here.accepted() == b"the word"
    assert here.predates_heads()
    here.save(state)
    assert not here.predates_heads(), "this version keeps one"
    (tmp_path / "accepted").unlink()
    assert here.accepted() == b"the word", "from here on it is part of the state"


def test_another_signature_under_the_same_registry_is_not_another_session(tmp_path: Path) -> None:
    """The signature is no part of the session's digest: a second one must not make a client forget where it stands."""
    session = federation(3).session
    again = greeting(replace(session, registry=replace(session.registry, signature=bytes(64))))
    assert again[0] == FIRST[0]
    assert again[1] != FIRST[1]
    assert entered(tmp_path).is_in(again[0])


class Killed(Exception):
    pass


def killed_at(point: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends before its ``point``-th change of the folder."""
    left = iter(range(point))

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **more: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            return real(*given, **more)

        return step

    for name in ("replace", "unlink"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))


@pytest.mark.parametrize("point", range(16))
def test_whenever_it_is_killed_while_it_leaves_it_remembers_or_has_left_for_good(
    tmp_path: Path, point: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, state = states_of_rounds(federation(3), 1)
    here = entered(tmp_path)
    here.accept(state, b"accept")
    with monkeypatch.context() as patch:
        killed_at(point, patch)
        with contextlib.suppress(Killed):
            here.enter(*SECOND)
    after = Standing(tmp_path)
    if after.is_in(FIRST[0]):
        assert same(after.load(WHO), state)  # it has not left
    else:
        assert after.load(WHO) is None
        with pytest.raises(LeftSession):
            after.enter(*FIRST)
    if not after.is_in(SECOND[0]):
        after.enter(*SECOND)
    assert after.is_in(SECOND[0])
    assert after.load(WHO) is None
    with pytest.raises(LeftSession):
        Standing(tmp_path).enter(*FIRST)


def test_a_damaged_agreement_refuses_every_session_until_somebody_looks(tmp_path: Path) -> None:
    here = entered(tmp_path)
    (tmp_path / "agreed").write_bytes(b"\x05abc")
    with pytest.raises(InvalidInput, match="is damaged"):
        here.enter(*SECOND)


# ---------------------------------------- who signed what
def test_what_was_signed_in_vain_is_kept_and_what_was_verified_is_not(tmp_path: Path) -> None:
    here, disputed = entered(tmp_path), tmp_path / "disputed.txt"
    _, tagged, ready = states_of_rounds(federation(3), 1)
    here.answer(tagged, b"first")
    here.answer(tagged, b"first")  # the same tag again, because it was lost
    here.accept(ready, b"")
    assert not disputed.exists()
    for word in (b"second", b"third"):
        here.answer(tagged, word)
    assert disputed.read_text().split() == [b"second".hex()]
    here.enter(*SECOND)
    assert disputed.read_text().split() == [b"second".hex(), b"third".hex()]
