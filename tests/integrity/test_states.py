"""Parties that are killed between any two steps go on as if nothing had happened, or say what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from integrity.parties import Federation, federation, honest_round, identity, play_out, registry_of, stage, verdict_of
from integrity.processes import ClientProcess, play_round, processes
from lrdp.codec import pack, unpack
from lrdp.errors import InvalidInput, LrdpError, NotVerified
from lrdp.integrity import blame, client, exact, server, states
from lrdp.integrity.keys import Identity
from lrdp.integrity.rounds import Contribution, run_round
from lrdp.integrity.schemes import sketch_client
from lrdp.integrity.session import ProofMethod
from lrdp.integrity.verdicts import Verdict

METHODS = list(ProofMethod)


def drawn(world: Federation) -> dict[str, tuple[np.ndarray, bytes]]:
    return {name: (world.update(), world.rng.bytes(32)) for name in world.clients}


@pytest.mark.parametrize("method", METHODS)
def test_a_round_through_disks_gives_the_receipts_of_a_round_in_memory(method):
    plain, saved = (federation(4, method=method, seed=5) for _ in range(2))
    host, clients = processes(saved)
    waiting = None
    for _ in range(3):
        updates = drawn(plain)
        outcome = run_round(
            plain.idle,
            plain.clients,
            {
                name: Contribution(update=1 + plain.idle.position.round, values=u, nonce=n)
                for name, (u, n) in updates.items()
            },
        )
        plain.idle, plain.clients = outcome.server, outcome.clients
        waiting, tags = play_round(host, clients, updates)
        assert waiting.receipt.accepts == ()
        receipt = waiting.endorse([clients[name].settle(tags) for name in clients])
        assert receipt.encode() == outcome.receipt.encode()
        for name, one in clients.items():
            assert one.load().position == plain.clients[name].position
            assert one.load().model.tobytes() == plain.idle.model.tobytes()
        assert host.load().position == plain.idle.position


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_client_agrees_on_a_key_with_each_peer_once_a_session(monkeypatch, forgetful):
    """The control forgets its half between rounds, and pays for it."""
    agreed: list[tuple[str, bytes]] = []
    agree = Identity.agree
    monkeypatch.setattr(Identity, "agree", lambda self, key: agreed.append((self.name, key)) or agree(self, key))
    world = federation(4, session=f"agreed on once, {forgetful}")
    host, clients = processes(world)
    for _ in range(3):
        _, tags = play_round(host, clients, drawn(world))
        for one in clients.values():
            one.settle(tags)
        if forgetful:
            sketch_client.cache_clear()
    assert len(set(agreed)) == 4 * 3
    assert len(agreed) == 4 * 3 * (3 if forgetful else 1)


def test_sessions_identities_and_registries_share_no_keys():
    world = federation(3)
    alike = replace(identity("c000"), agreement_secret=bytes(31) + b"\x01")
    fewer = replace(world.session, registry=registry_of([identity("c000"), identity("c001")]))
    halves = [
        sketch_client(identity("c000"), world.session),
        sketch_client(identity("c000"), replace(world.session, identifier=bytes(32))),
        sketch_client(identity("c000"), fewer),
        sketch_client(alike, world.session),
    ]
    assert len({half.pairwise.key("c001") for half in halves}) == 4
    assert sketch_client(identity("c001"), world.session).pairwise.key("c000") == halves[0].pairwise.key("c001")


def reading(decode: Callable, name: str, vectors: dict) -> Callable:
    return lambda data: decode(data, identity(name), vectors)


def every_state(method: ProofMethod) -> dict[str, tuple[Any, bytes, Callable]]:
    """One of each, with its bytes and how to read them."""
    scene = stage(federation(3, method=method))
    world, played = scene.federation, play_out(scene)
    committed = scene.committed["c001"]
    found: dict[str, tuple[Any, bytes, Callable]] = {}
    waiting = replace(played.tagged["c001"], waited=3)
    clients: list[Any] = [committed.begun.ready, committed.begun, committed, waiting]
    for state in clients:
        vectors = states.client_vectors(state)
        found[type(state).__name__] = (
            state,
            states.encode_client(state),
            reading(states.decode_client, "c001", vectors),
        )
    idle = server.retry(world.idle)
    read = lambda data: states.decode_server(data, identity("server"), idle.model)  # noqa: E731
    return {**found, "Idle": (idle, states.encode_server(idle), read)}


def vectors_of(state: Any) -> dict[str, np.ndarray]:
    return {"model": state.model} if isinstance(state, server.Idle) else states.client_vectors(state)


def encoded(state: Any) -> bytes:
    return states.encode_server(state) if isinstance(state, server.Idle) else states.encode_client(state)


def decoded(kind: type, data: bytes, who: Identity, vectors: dict[str, np.ndarray]) -> Any:
    if kind is server.Idle:
        return states.decode_server(data, who, vectors["model"])
    return states.decode_client(data, who, vectors)


STATES = {method: every_state(method) for method in METHODS}
EACH = [(method, name) for method in METHODS for name in STATES[method]]


@pytest.mark.parametrize(("method", "name"), EACH)
def test_a_state_has_one_encoding_and_comes_back_whole(method, name):
    state, data, read = STATES[method][name]
    back = read(data)
    assert type(back) is type(state)
    assert type(back).__name__ == name
    assert encoded(back) == data
    assert {key: one.tobytes() for key, one in vectors_of(back).items()} == {
        key: one.tobytes() for key, one in vectors_of(state).items()
    }


@pytest.mark.parametrize(("method", "name"), EACH)
def test_no_secret_of_the_key_file_is_in_a_state(method, name):
    _, data, _ = STATES[method][name]
    for who in ("c001", "server"):
        assert identity(who).signing_secret not in data
        assert identity(who).agreement_secret not in data


@pytest.mark.parametrize(("method", "name"), EACH)
@settings(max_examples=60)
@given(data=st.data())
def test_damaged_states_are_refused(method, name, data):
    _, good, read = STATES[method][name]
    damaged = bytearray(good)
    at = data.draw(st.integers(0, len(good) - 1))
    damaged[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    if bytes(damaged) != good:
        assert verdict_of(lambda: read(bytes(damaged))) is Verdict.MALFORMED


@pytest.mark.parametrize(("method", "name"), EACH)
@settings(max_examples=60)
@given(data=st.data())
def test_states_with_a_good_checksum_and_anything_inside_give_a_typed_error_or_a_state(method, name, data):
    _, good, read = STATES[method][name]
    parts = list(unpack(good[:-32]))
    at = data.draw(st.integers(0, len(parts) - 1))
    parts[at] = data.draw(st.one_of(st.binary(max_size=80), st.sampled_from(parts)))
    body = pack(*parts)
    sealed = body + hashlib.sha256(body).digest()
    try:
        back = read(sealed)
    except LrdpError:
        event("refused")
    else:
        assert encoded(back) == sealed


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(32), hashlib.sha256().digest()])
def test_bytes_too_short_for_a_state_are_refused(data):
    model = STATES[ProofMethod.SKETCH]["Idle"][0].model
    assert verdict_of(lambda: states.decode_client(data, identity("c001"), {"model": model})) is Verdict.MALFORMED
    assert verdict_of(lambda: states.decode_server(data, identity("server"), model)) is Verdict.MALFORMED


def test_a_clients_state_is_no_servers_and_the_other_way_round():
    (ready, of_client, _), (idle, of_server, _) = (STATES[ProofMethod.SKETCH][name] for name in ("Ready", "Idle"))
    with pytest.raises(NotVerified, match="MALFORMED"):
        states.decode_server(of_client, identity("c001"), ready.model)
    with pytest.raises(NotVerified, match="none of"):
        states.decode_client(of_server, identity("c001"), {"model": idle.model})
    with pytest.raises(InvalidInput, match="is not a state"):
        states.encode_client(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="is not a state"):
        states.client_vectors(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "name"), EACH)
def test_a_state_wants_its_own_keys(method, name):
    state, data, _ = STATES[method][name]
    for other in (identity("c002"), identity("c001", generation=1)):
        with pytest.raises(InvalidInput, match="not that of"):
            decoded(type(state), data, other, vectors_of(state))


def _refused(method: ProofMethod, name: str, key: str) -> tuple[Verdict, ...]:
    """What is said of a vector that differs in one coordinate, and of one of another type."""
    state, data, _ = STATES[method][name]
    vectors, who = vectors_of(state), "server" if name == "Idle" else "c001"
    altered = vectors[key].copy()
    altered[-1] += 1
    wider = vectors[key].astype("<i8")
    return tuple(
        verdict_of(partial(decoded, type(state), data, identity(who), {**vectors, key: given}))
        for given in ((altered,) if key == "model" else (altered, wider))
    )


@pytest.mark.parametrize(("method", "name"), EACH)
def test_every_vector_handed_back_is_checked(method, name):
    state, _, _ = STATES[method][name]
    for key in vectors_of(state):
        expected = Verdict.MODEL_MISMATCH if key == "model" else Verdict.MALFORMED
        assert set(_refused(method, name, key)) == {expected}


@pytest.mark.parametrize("key", ["model", "values", "sent", "aggregate"])
def test_a_vector_that_is_missing_is_asked_for(key):
    state, data, _ = STATES[ProofMethod.EXACT]["Tagged"]
    vectors = {name: one for name, one in states.client_vectors(state).items() if name != key}
    with pytest.raises(InvalidInput, match=f"'{key}' must be handed back"):
        states.decode_client(data, identity("c001"), vectors)


def test_a_restored_mask_is_not_used_twice():
    """The control: without the list of used masks in the state, the same mask would cover another update."""
    world = federation(3, method=ProofMethod.EXACT)
    host, clients = processes(world)
    train = host.open(list(clients))
    one = clients["c001"]
    before = states.encode_client(one.load())
    one.pledge(train, world.update(), bytes(32))
    one.give_up()
    with pytest.raises(InvalidInput, match="used up"):
        one.pledge(train, world.update(), bytes(32))
    one.disk.state = before
    one.pledge(train, world.update(), bytes(32))


def test_a_restored_client_still_has_its_bare_tag():
    tagged = play_out(stage(federation(4))).tagged["c002"]
    back: Any = states.decode_client(states.encode_client(tagged), identity("c002"), states.client_vectors(tagged))
    assert blame.bare_tag(back) == blame.bare_tag(tagged)


# --------------------------------------------------------------------------------------- what a framework has to handle
def finish(clients: dict[str, ClientProcess], tags: bytes) -> list[bytes]:
    return [one.settle(tags) for one in clients.values()]


def test_accepts_of_a_round_arrive_with_the_next_and_then_an_absent_client_joins():
    world = federation(5)
    host, clients = processes(world)
    late = clients.pop("c004")
    updates = lambda: {name: (world.update(), world.rng.bytes(32)) for name in clients}  # noqa: E731
    first, tags = play_round(host, clients, updates())
    accepts = finish(clients, tags)
    second, tags = play_round(host, clients, updates())
    receipts = [first.endorse(accepts[:2]), first.endorse(accepts)]
    assert [len(receipt.accepts) for receipt in receipts] == [2, 4]
    with pytest.raises(NotVerified, match="MODEL_MISMATCH"):
        late.catch_up([receipts[1].encode()], host.load().model)
    with pytest.raises(NotVerified, match="QUORUM_MISSING"):
        late.catch_up([receipts[1].encode(), second.receipt.encode()], host.load().model)
    receipts = [receipts[1], second.endorse(finish(clients, tags))]
    late.catch_up([receipt.encode() for receipt in receipts], host.load().model)
    clients["c004"] = late
    _, tags = play_round(host, clients, updates())
    finish(clients, tags)
    assert {one.load().position.tip for one in clients.values()} == {host.load().position.tip}


@pytest.mark.parametrize("method", METHODS)
def test_a_rejected_attempt_is_rolled_back_and_the_same_updates_are_sent_again(method):
    world = federation(4, method=method)
    host, clients = processes(world)
    updates = drawn(world)
    train = host.open(list(clients))
    for name, one in clients.items():
        host.enlist(one.pledge(train, *updates[name]))
    for one in clients.values():
        host.admit(*one.reveal(host.pledges()))
    _, publish = host.publish()
    for name in ("c000", "c001"):  # the others never see PUBLISH
        clients[name].answer(*publish)
    host.retry()
    for one in clients.values():
        one.give_up()
    again = {name: (values, world.rng.bytes(32)) for name, (values, _) in updates.items()}
    waiting, tags = play_round(host, clients, again)
    assert waiting.receipt.header.attempt == 1
    assert len(waiting.endorse(finish(clients, tags)).accepts) == 4


def test_a_failed_settlement_leaves_the_disk_as_it_was():
    world = federation(3)
    host, clients = processes(world)
    _, tags = play_round(host, clients, drawn(world))
    one = clients["c000"]
    before = one.disk.state
    altered = tags[:-1] + bytes([tags[-1] ^ 1])
    with pytest.raises(NotVerified, match="TAG_SIG"):
        one.settle(altered)
    assert one.disk.state == before
    one.settle(tags)
    assert isinstance(one.load(), client.Ready)


def test_an_accept_that_does_not_hold_is_left_out_of_the_receipt():
    world = federation(4)
    host, clients = processes(world)
    waiting, tags = play_round(host, clients, drawn(world))
    accepts = finish(clients, tags)
    forged = accepts[0][:-1] + bytes([accepts[0][-1] ^ 1])
    assert [word.name for word in waiting.endorse([forged, accepts[2], accepts[1]]).accepts] == ["c001", "c002"]
    assert [word.name for word in waiting.endorse([*accepts, forged]).accepts] == ["c000", "c001", "c002", "c003"]


def test_a_history_goes_on_after_everybody_restarted():
    world = federation(3)
    honest_round(world)
    host, clients = processes(world)
    _, tags = play_round(host, clients, drawn(world))
    finish(clients, tags)
    assert host.load().position.round == 2


def _exact_half(peers, masked) -> bytes:
    """What an exact client's half would be on disk with these peers and used masks, in this order."""
    return pack(b"EXACT-CLIENT/v1", bytes(32), pack(*(pack(*peer) for peer in peers)), pack(*masked))


FIRST, SECOND = (b"c001", b"\x01" * 32), (b"c002", b"\x02" * 32)
LESS, MORE = b"\x03" * 32, b"\x04" * 32


def test_an_exact_half_has_one_encoding():
    half = _exact_half([FIRST, SECOND], [LESS, MORE])
    assert exact.read_exact_client(identity("c000"), federation(3).session, half).encode() == half


@pytest.mark.parametrize(
    ("peers", "masked"),
    [
        ([SECOND, FIRST], [LESS]),
        ([FIRST, FIRST], [LESS]),
        ([FIRST, SECOND], [MORE, LESS]),
        ([FIRST, SECOND], [LESS, LESS]),
        ([FIRST, SECOND], [LESS[:31]]),
        ([FIRST[:1], SECOND], [LESS]),
        ([(*FIRST, b""), SECOND], [LESS]),
        ([(b"C001", FIRST[1]), SECOND], [LESS]),
        ([(FIRST[0], FIRST[1][:31]), SECOND], [LESS]),
    ],
)
def test_an_exact_half_in_another_order_or_with_something_twice_is_malformed(peers, masked):
    half = _exact_half(peers, masked)
    with pytest.raises(NotVerified, match="MALFORMED"):
        exact.read_exact_client(identity("c000"), federation(3).session, half)
