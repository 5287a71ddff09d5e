"""A server of exact rounds with all of its keys tries what it can; each hospital declines, and no update is shown.

One session plays all attacks: each is refused and changes nothing, so the honest round goes on from where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from lrdp.federation.client.state_file import StateFile
from lrdp.federation.wire.layout import pack_values
from lrdp.federation.wire.masked import Pledged, Reveal, Revealed
from lrdp.federation.wire.questions import Announcement, Contribute, Decline, HandIn
from lrdp.federation.wire.signing import sign_order
from lrdp.integrity import ClientState, FixedPoint, Publish, Train, new_identity, server, session_key
from lrdp.integrity.commitments import commitment, pledge

from .hostile import VICTIM
from .masked import ORDER, MaskedStage, masked_stage, true_update
from .test_faults import commanded

Lie = Callable[[MaskedStage, Publish], Publish]


def altered(stage: MaskedStage, said: Publish) -> Publish:
    total = said.aggregate.copy()
    total[3] += 1
    return stage.resigned(said, total)


def omitting_a_peer(stage: MaskedStage, said: Publish) -> Publish:
    kept = tuple(each for each in said.relayed if each.pledge.name != stage.names[-1])
    return stage.resigned(said, roster=tuple(each.pledge for each in kept), relayed=kept)


def omitting_the_victim(stage: MaskedStage, said: Publish) -> Publish:
    kept = tuple(each for each in said.relayed if each.pledge.name != VICTIM)
    return stage.resigned(said, roster=tuple(each.pledge for each in kept), relayed=kept)


def injecting(stage: MaskedStage, said: Publish) -> Publish:
    """A vector of the server's own in the sum, and in the masked update that it is said to be part of."""
    wanted = np.full_like(said.aggregate, 5)
    forged = replace(said.relayed[1], values=said.relayed[1].values + wanted)
    return stage.resigned(said, said.aggregate + wanted, relayed=(said.relayed[0], forged, *said.relayed[2:]))


def swapping(stage: MaskedStage, said: Publish) -> Publish:
    one, two = said.relayed[1], said.relayed[2]
    swapped = (said.relayed[0], replace(one, values=two.values), replace(two, values=one.values), said.relayed[3])
    return stage.resigned(said, relayed=swapped)


def with_another_commitment(stage: MaskedStage, said: Publish) -> Publish:
    """A peer signed it, in an attempt before this one: it opens, and is not what it was bound to here."""
    position, name = stage.coordinator._idle.position, stage.names[1]
    identity, nonce = stage.world.consortium.client(name).identity(), bytes(32)
    bound = pledge(position, identity, commitment(position, name, nonce, said.relayed[1].values))
    other = replace(said.relayed[1], pledge=bound, nonce=nonce)
    relayed = (said.relayed[0], other, *said.relayed[2:])
    return stage.resigned(said, roster=tuple(each.pledge for each in relayed), relayed=relayed)


def one_bit_for_one_client(stage: MaskedStage, said: Publish) -> Publish:
    forged = said.relayed[2].values.copy()
    forged[0] ^= 1
    return replace(said, relayed=(*said.relayed[:2], replace(said.relayed[2], values=forged), said.relayed[3]))


LIES: dict[str, tuple[Lie, str]] = {
    "alter": (altered, "sum-mismatch"),
    "omit a peer": (omitting_a_peer, "share-altered"),
    "omit the victim": (omitting_the_victim, "excluded"),
    "inject": (injecting, "share-altered"),
    "swap": (swapping, "share-altered"),
    "another commitment": (with_another_commitment, "share-altered"),
    "other bytes to one": (one_bit_for_one_client, "share-altered"),
}


def test_every_attack_on_a_round_is_declined_and_the_honest_round_goes_on(tmp_path: Path) -> None:  # noqa: PLR0915
    stage = masked_stage(tmp_path, 4)
    position = stage.coordinator._idle.position

    # Work that would let an update leave without masks, or with masks for fewer.
    _, train = server.open_round(stage.coordinator._idle, stage.names)
    invitation, order = stage.wire.train(train), ORDER.encode()
    signature = sign_order(stage.identity, position, order)
    stage.refused(Contribute(order=order, signature=signature, invitation=invitation), "invalid")
    stage.refused(HandIn(invitation=invitation), "invalid")
    work = stage.invite()[VICTIM]
    stage.refused(replace(work, keys=work.keys[:3]), "roster-unknown")
    stage.refused(replace(work, keys=(*work.keys[:3], work.keys[1])), "roster-unknown")
    sybil = session_key(new_identity(stage.names[1]), position.session, bytes(range(32)))
    stage.refused(replace(work, keys=(work.keys[0], sybil.encode(), *work.keys[2:])), "roster-unknown")
    own = session_key(stage.world.consortium.client(VICTIM).identity(), position.session, bytes(range(32)))
    stage.refused(replace(work, keys=(own.encode(), *work.keys[1:])), "roster-unknown")
    two: Train = replace(train, invited=tuple(stage.names[:2]))
    small = replace(two, signature=stage.identity.sign(b"train/v1", two.unsigned))
    stage.refused(replace(work, invitation=stage.wire.train(small)), "roster-too-small")

    # Asked twice in one attempt, a hospital says the same, and its masks are used once.
    stage.pledge()
    first = stage.received[-len(stage.names)]
    again = stage.ask(work)
    assert isinstance(again, Pledged)
    assert stage.received[-1].prefix == first.prefix
    assert [stage.account(name)[0] for name in stage.names] == [1] * 4

    # Masked updates are asked for too early, or for others than those who are bound.
    asked = stage.asking()
    stage.refused(Reveal(pledges=()), "roster-malformed")
    stage.refused(Reveal(pledges=asked.pledges[:3]), "roster-malformed")
    stage.refused(Reveal(pledges=(*asked.pledges[:3], asked.pledges[1])), "roster-malformed")
    forged = bytearray(asked.pledges[3])
    forged[-1] ^= 1
    stage.refused(Reveal(pledges=(*asked.pledges[:3], bytes(forged))), "peer-update-sig")
    truth = {name: true_update(stage.world, name) for name in stage.names}
    updates = stage.reveal()
    sent = stage.received[-len(stage.names)]
    assert isinstance(stage.ask(asked), Revealed)
    assert (stage.received[-1].prefix, bytes(stage.received[-1].bodies[0])) == (sent.prefix, bytes(sent.bodies[0]))
    identity = stage.world.consortium.client(stage.names[1]).identity()
    other = pledge(position, identity, commitment(position, identity.name, bytes(32), truth[VICTIM]))
    stage.refused(Reveal(pledges=(asked.pledges[0], stage.wire.pledge(other), *asked.pledges[2:])), "share-altered")

    # The server has every masked update: of no part of the roster do they add up to what was trained.
    for size in (1, 2, 3):
        for some in combinations(stage.names, size):
            masked = np.sum([updates[name].values for name in some], axis=0, dtype="<i4")
            assert not np.array_equal(masked, np.sum([truth[name] for name in some], axis=0, dtype="<i4")), some
    said = stage.publish()
    assert said.aggregate.tolist() == np.sum(list(truth.values()), axis=0).tolist()
    point = FixedPoint(size=truth[VICTIM].size)
    everything = b"".join(bytes(part) for each in stage.received for part in (each.prefix, *each.bodies))
    for values in truth.values():
        assert values.tobytes() not in everything
        assert pack_values(values, point) not in everything

    # What it publishes is not the sum of what they are bound to, or is shown to one of them only.
    for lie, code in LIES.values():
        stage.refused(stage.announcement(lie(stage, said)), code)
    bare = stage.announcement(said)
    stage.refused(Announcement(publish=bare.publish, aggregate=bare.aggregate), "malformed")
    stage.refused(replace(bare, relayed=(bare.relayed or b"")[:-4]), "share-altered")
    stage.conclude(said)
    assert [stage.account(name)[0] for name in stage.names] == [1] * 4

    # The next round's masks are others, and what was verified is over.
    stage.refused(stage.announcement(said), "behind")
    stage.refused(asked, "behind")
    stage.refused(work, "server-sig")


@pytest.mark.parametrize(("smaller", "code"), [(True, "update-spent"), (False, "")])
def test_a_masked_update_that_left_is_masked_for_the_same_roster_alone(
    tmp_path: Path, smaller: bool, code: str
) -> None:
    """Four were asked for their masked updates; then three are invited: the difference would be the fourth's."""
    stage = masked_stage(tmp_path, 4)
    stage.pledge()
    stage.reveal()
    stage.coordinator.give_up()
    names = stage.names[:3] if smaller else stage.names
    idle = stage.coordinator._idle
    _, train = server.open_round(idle, names)
    order = ORDER.encode()
    keys = stage.coordinator.keys.of(names)
    stage.coordinator._state, _ = server.open_round(idle, names)
    works = {name: replace(work, keys=keys) for name, work in stage.invite_as(names, order, train).items()}
    for name, work in works.items():
        pledged = stage.ask(work, name)
        assert isinstance(pledged, Pledged), pledged
        stage.coordinator.take(pledged)
    asked = stage.asking()
    answer = stage.ask(asked)
    assert getattr(answer, "code", "") == code
    assert stage.account()[0] == 1


def restored(stage: MaskedStage, before: bytes) -> None:
    (stage.world.consortium.client(VICTIM).folder / "ledger.db").write_bytes(before)


@pytest.mark.parametrize("adopted", [False, True])
def test_no_masked_update_leaves_that_a_restored_ledger_does_not_hold(tmp_path: Path, adopted: bool) -> None:
    """Nobody else knows that it was charged: the answer was lost, and with it the head."""
    stage = masked_stage(tmp_path, 3)
    folder = stage.world.consortium.client(VICTIM).folder
    before = (folder / "ledger.db").read_bytes()
    invited = stage.invite()
    for name, work in invited.items():
        pledged = stage.ask(work, name)
        assert isinstance(pledged, Pledged), pledged
        stage.coordinator.take(pledged)
    asked = stage.asking()
    restored(stage, before)
    assert getattr(stage.ask(asked), "code", "") == "ledger"
    if adopted:
        commanded("ledger", "adopt-head", "--folder", folder)
        assert stage.account()[1], "what was lost is charged"
    answer = stage.ask(asked)
    assert isinstance(answer, Decline)
    assert answer.code == ("behind" if adopted else "ledger")
    assert isinstance(stage.ask(invited[VICTIM]), Decline)


class Killed(BaseException):
    """Nothing that a client catches."""


def test_nothing_leaves_for_a_charge_that_was_lost_with_a_client_that_died_once_it_was_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has seen that charge, and the backup is newer than all that anybody has."""
    stage = masked_stage(tmp_path, 3)
    folder = stage.world.consortium.client(VICTIM).folder
    before = (folder / "ledger.db").read_bytes()
    save = StateFile.save

    def dying(file: StateFile, state: ClientState, accept: bytes = b"") -> None:
        save(file, state, accept)
        raise Killed

    invited = stage.invite()
    with monkeypatch.context() as patch:
        patch.setattr(StateFile, "save", dying)
        with pytest.raises(Killed):
            stage.ask(invited[VICTIM])
    assert stage.account()[0] == 1
    restored(stage, before)
    assert getattr(stage.ask(invited[VICTIM]), "code", "") == "ledger"


def test_one_roster_is_not_shown_two_updates_of_a_client_whose_ledger_was_restored(tmp_path: Path) -> None:
    """The others show theirs again, so the difference of the two sums would be that of two updates of one hospital."""
    stage = masked_stage(tmp_path, 3)
    folder = stage.world.consortium.client(VICTIM).folder
    before = (folder / "ledger.db").read_bytes()
    stage.pledge()
    stage.reveal()
    stage.coordinator.give_up()
    restored(stage, before)
    idle = stage.coordinator._idle
    stage.coordinator._state, train = server.open_round(idle, stage.names)
    keys = stage.coordinator.keys.of(stage.names)
    work = replace(stage.invite_as(stage.names, ORDER.encode(), train)[VICTIM], keys=keys)
    assert getattr(stage.ask(work), "code", "") == "ledger", "without a head from the server"
    commanded("ledger", "adopt-head", "--folder", folder)
    charged = stage.account()
    assert getattr(stage.ask(work), "code", "") == "update-spent"
    assert stage.account() == charged, "before it was paid for"
