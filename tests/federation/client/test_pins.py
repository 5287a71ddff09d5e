"""What the policy pins: whose sessions are joined, and how many must agree before an absent client believes a round."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from federation.hostile import HONEST, VICTIM, Stage, answer_in, change_policy, stage
from federation.worlds import TRAINING, World, hospitals, initial, model, records, world
from lrdp.errors import InvalidInput, NoVerifiedRound
from lrdp.federation import Order, Terms, found
from lrdp.federation.client.guard import Ward, inspected
from lrdp.federation.client.local_task import LocalTask
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.wire.flower import to_records
from lrdp.federation.wire.layout import raw
from lrdp.federation.wire.questions import (
    Answer,
    CatchUp,
    Contribute,
    Contributed,
    Decline,
    Here,
    Question,
    TrainedAhead,
    to_frame,
)
from lrdp.federation.wire.signing import sign_order, sign_session
from lrdp.integrity import Contribution, Identity, Wire, client, keys, new_identity, run_round, server, sketch_client
from lrdp.integrity.messages import NONCE_SIZE
from lrdp.integrity.session import majority
from lrdp.ledger.policy import Retries
from lrdp.training import CrossEntropy

MEMBERS = 20


# ---------------------------------------- whose sessions are joined
def terms_of(place: World, identity: Identity, min_roster: int | None = None) -> Terms:
    return Terms(
        identity=identity,
        registry=place.consortium.registry(),
        folder=place.consortium.server_folder,
        min_roster=min_roster,
    )


def asked(place: World, question: Question, name: str = VICTIM) -> Answer:
    made = Stage(place, None, None)  # type: ignore[arg-type]
    return answer_in(made.post(to_records(to_frame(question)), name=name))


def test_a_stranger_with_the_right_registry_spends_nothing(tmp_path: Path) -> None:
    made = stage(tmp_path)
    before = made.account()
    stranger = new_identity("server")
    for _ in range(3):
        theirs = Stage(made.world, terms_of(made.world, stranger).open(initial()), stranger)
        assert theirs.ask(theirs.coordinator.hello) == Decline(code="server")
        assert isinstance(theirs.ask(theirs.from_model(theirs.coordinator.model)), Decline)
    assert made.account() == before == (0, 0, 0.0)
    assert not (made.world.consortium.client(VICTIM).standing / "agreed").exists()


def test_control_who_pins_the_stranger_trains_for_it(tmp_path: Path) -> None:
    made = stage(tmp_path)
    stranger = new_identity("server")
    change_policy(made.world, VICTIM, server_keys=f'["{stranger.member.signing_key.hex()}"]')
    theirs = Stage(made.world, terms_of(made.world, stranger).open(initial()), stranger)
    assert isinstance(theirs.ask(theirs.coordinator.hello), Here)
    assert isinstance(theirs.ask(theirs.from_model(theirs.coordinator.model)), Contributed)
    assert made.account()[0] == 1


def test_one_of_several_pinned_servers_is_joined(tmp_path: Path) -> None:
    made = stage(tmp_path)
    ours, other = made.identity.member.signing_key.hex(), "ab" * 32
    change_policy(made.world, VICTIM, server_keys=f'["{other}", "{ours}"]')
    assert isinstance(made.ask(made.coordinator.hello), Here)


def test_naming_the_pinned_key_is_not_enough_to_open_a_session(tmp_path: Path) -> None:
    """The key is public: whoever brings messages can write it into a session of his own."""
    made = stage(tmp_path)
    made.greet()
    standing = made.world.consortium.client(VICTIM).standing / "agreed"
    before, stranger = standing.read_bytes(), new_identity("server")
    fresh = made.fresh()
    for signature in (b"", sign_session(stranger, fresh.session), made.coordinator.hello.signature):
        hello = replace(fresh.coordinator.hello, signature=signature)
        assert fresh.ask(hello) == Decline(code="server-sig")
        assert standing.read_bytes() == before, "and the client is still in the session that it was in"
    assert isinstance(fresh.ask(fresh.coordinator.hello), Here)


def test_an_order_that_the_server_did_not_sign_for_this_round_spends_nothing(tmp_path: Path) -> None:
    """With or without TRAIN: of an update that is trained ahead, the order is all that the server says."""
    made = stage(tmp_path)
    made.honest_round()
    paid, stranger = made.account(), new_identity("server")
    position, order = made.coordinator._idle.position, HONEST.encode()
    ahead = made.coordinator.order_ahead(VICTIM, HONEST)
    forgeries = {
        "none": b"",
        "another's": sign_order(stranger, position, order),
        "of another order": sign_order(made.identity, position, Order(steps=1).encode()),
        "of the round before": sign_order(made.identity, replace(position, round=0), order),
        "from another model": sign_order(made.identity, replace(position, tip=bytes(32)), order),
        "of another session": sign_order(made.identity, made.fresh().coordinator._idle.position, order),
    }
    for signature in forgeries.values():
        for work in (ahead, made.invitation()):
            given = to_frame(replace(work, order=order, signature=signature))
            assert made.send(given) == Decline(code="server-sig")
    assert made.account() == paid
    assert isinstance(made.send(to_frame(ahead)), TrainedAhead)
    assert made.account()[0] == paid[0] + 1


@pytest.mark.parametrize(
    ("change", "code"),
    [({"server_keys": "[]"}, "server"), ({"min_roster": "4"}, "roster"), ({"registry_sha256": '""'}, "registry")],
)
def test_a_policy_that_changes_within_a_session_counts_from_the_next_message_on(
    tmp_path: Path, change: dict[str, str], code: str
) -> None:
    made = stage(tmp_path)
    made.honest_round()
    paid = made.account()
    change_policy(made.world, VICTIM, **change)
    assert made.ask(made.invitation()) == Decline(code=code)
    assert made.account() == paid


def test_new_sessions_of_a_pinned_server_share_what_one_server_may_spend(tmp_path: Path) -> None:
    made = stage(tmp_path, per_run_epsilon="7.0")
    codes = []
    for _ in range(9):
        made = made.fresh()
        made.greet()
        answer = made.ask(made.invitation())
        codes.append(answer.code if isinstance(answer, Decline) else "")
    assert codes[0] == ""
    assert codes[-1] == "run-quota"
    assert 0 < made.account()[2] <= 7.0


def test_a_policy_without_a_server_joins_nobody_and_the_guard_says_what_to_write(tmp_path: Path) -> None:
    """As policies are that were written before servers were pinned."""
    made = stage(tmp_path)
    home = made.world.consortium.client(VICTIM)
    path = home.folder / "policy.toml"
    pinned = ("server_keys", "min_roster", "retries", "scheme")
    kept = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if not line.startswith(pinned)]
    path.write_text("".join(kept), encoding="utf-8")
    assert home.policy().peers.retries is Retries.SAME_ROSTER
    assert made.ask(made.coordinator.hello) == Decline(code="server")
    task = LocalTask(model=model, dataset=records, loss=CrossEntropy(classes=2))
    with pytest.raises(InvalidInput, match=r"no server is pinned .*server_keys, min_roster and retries"):
        inspected(Ward(home=home, task=task, settings={"partition-id": 0}))


# ---------------------------------------- how many must agree
@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> World:
    return world(tmp_path_factory.mktemp("twenty"), MEMBERS)


def forged(place: World, colluders: list[str], min_roster: int, accepts: int) -> tuple[Coordinator, Contribute]:
    """A first round of these alone, with updates as the server likes them, as whoever was absent is shown it."""
    coordinator = terms_of(place, place.consortium.server_identity(), min_roster).open(initial())
    idle = coordinator._idle
    session = idle.position.session
    identities = {name: keys.load_identity(place.consortium.client(name).identity_file) for name in colluders}
    begun = {
        name: client.start(identity, sketch_client(identity, session), session, idle.model)
        for name, identity in identities.items()
    }
    size = session.parameters.point.size
    values = np.full(size, 1 << 22, dtype=np.int32)
    brought = {name: Contribution(values=values, nonce=os.urandom(NONCE_SIZE), update=1) for name in colluders}
    outcome = run_round(idle, begun, brought)
    assert not np.array_equal(outcome.server.model, idle.model)
    receipt = replace(outcome.receipt, accepts=outcome.receipt.accepts[:accepts])
    _, train = server.open_round(outcome.server, place.names)
    position, order = outcome.server.position, HONEST.encode()
    shown = Contribute(
        order=order,
        signature=sign_order(idle.identity, position, order),
        invitation=Wire(position).train(train),
        since=CatchUp(receipts=(receipt.encode(),), model=raw(outcome.server.model)),
    )
    return coordinator, shown


def believed(place: World, coordinator: Coordinator, shown: Contribute) -> str:
    """What the victim, which was absent, says: empty if it trains on the forged model."""
    for question in (coordinator.hello, shown):
        answer = asked(place, question)
        if isinstance(answer, Decline):
            return answer.code
    return ""


def test_three_colluders_of_twenty_cannot_forge_a_round_for_whoever_was_absent(twenty: World) -> None:
    assert believed(twenty, *forged(twenty, twenty.names[1:4], min_roster=3, accepts=3)) == "roster"
    assert twenty.books(VICTIM).charges.states == {}


def test_control_with_the_least_roster_of_three_they_can(tmp_path: Path) -> None:
    place = world(tmp_path, MEMBERS, min_roster=3)
    assert believed(place, *forged(place, place.names[1:4], min_roster=3, accepts=3)) == ""
    assert len(place.books(VICTIM).charges.states) == 1


def test_a_least_roster_of_eleven_is_forged_by_eleven_and_by_no_fewer(twenty: World) -> None:
    """What it buys, and no more: an honest majority of the registry."""
    colluders = twenty.names[1 : 1 + majority(twenty.consortium.registry())]
    assert len(colluders) == 11
    assert believed(twenty, *forged(twenty, colluders, min_roster=11, accepts=10)) == "quorum-missing"
    assert believed(twenty, *forged(twenty, colluders, min_roster=11, accepts=11)) == ""


# ---------------------------------------- what is filled in
@pytest.mark.parametrize(("members", "least"), [(3, 3), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5)])
def test_servers_and_policies_agree_on_a_majority_unless_told_otherwise(
    tmp_path: Path, members: int, least: int
) -> None:
    consortium = found(tmp_path / "consortium", dict.fromkeys(hospitals(members), TRAINING))
    identity, registry = consortium.server_identity(), consortium.registry()
    terms = Terms(identity=identity, registry=registry, folder=consortium.server_folder)
    assert terms.open(initial()).least == least == majority(registry)
    assert 2 * least > members
    peers = consortium.client(VICTIM).policy().peers
    assert peers.min_roster == least
    assert peers.server_keys == (identity.member.signing_key.hex(),)
    assert peers.registry_sha256 == registry.digest.hex()
    assert peers.retries is Retries.SAME_ROSTER


def test_a_server_that_wants_less_than_its_clients_is_told_so_and_nobody_pays(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    for name in place.names:
        change_policy(place, name, min_roster="4")
    with pytest.raises(NoVerifiedRound, match="0 connected clients"):
        place.strategy(order=Order(), arrival=0.1).start(place.grid, initial(), num_rounds=1, timeout=5)
    assert [len(place.books(name).charges.states) for name in place.names] == [0] * 3


def test_a_session_that_nobody_could_make_a_round_of_is_not_opened(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    with pytest.raises(InvalidInput, match="a round needs 4, and the registry has 3 members"):
        terms_of(place, place.consortium.server_identity(), 4).open(initial())
