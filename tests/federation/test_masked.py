"""Exact rounds: the server sees the sum alone, whoever comes, goes or is killed; and the limits of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from lrdp.errors import InvalidInput, NoVerifiedRound, Unsupported
from lrdp.federation import BufferedAverage, ExactRounds, SketchRounds, Terms, VerifiedAverage
from lrdp.federation.server.resuming import terms_of
from lrdp.federation.wire import masked
from lrdp.federation.wire.layout import pack_values
from lrdp.federation.wire.masked import (
    AbleToMask,
    MaskedAnnouncement,
    Pledged,
    Pledging,
    Reveal,
    Revealed,
    relayed_bytes,
    require_relayable,
)
from lrdp.federation.wire.questions import OwnTag
from lrdp.integrity import ExactClient, FixedPoint, Train, Whole, new_identity
from lrdp.integrity.client import Committed
from lrdp.ledger import PeersRule, Retries, Scheme

from .hostile import change_policy
from .masked import charges, masked_world, question_in, state_of
from .rotations import newcomer, rotate
from .test_rotation import at_round
from .worlds import World, initial, reopened, world

EXACT = ExactRounds()


class Ear:
    """Every byte that clients send, and every update that they made, which no byte may tell."""

    def __init__(self) -> None:
        self.place: World | None = None
        self.heard: list[bytes] = []
        self.updates: dict[bytes, np.ndarray] = {}

    def after(self, message: Message) -> Message:
        assert self.place is not None
        for record in message.content.array_records.values():
            self.heard += [array.data for array in record.values()]
        for name in self.place.names:
            state = state_of(self.place, name)
            if isinstance(state, Committed):
                self.updates[state.values.tobytes()] = np.array(state.values)
        return message

    def tells(self) -> int:
        """How many updates lie open in what was heard, in either encoding."""
        everything = b"\0".join(self.heard)
        forms = [(data, pack_values(values, FixedPoint(size=values.size))) for data, values in self.updates.items()]
        return sum(any(form in everything for form in each) for each in forms)


@pytest.mark.parametrize(("scheme", "rounds", "open_updates"), [("exact", EXACT, 0), ("sketch", SketchRounds(), 3)])
def test_no_byte_that_the_server_receives_tells_an_update_and_the_control_tells_all(
    tmp_path: Path, scheme: str, rounds: Any, open_updates: int
) -> None:
    ear = Ear()
    ear.place = place = world(tmp_path, 3, scheme=Scheme(scheme), after=ear.after)
    result = place.run(1, scheme=rounds)
    assert [report.verified for report in place.reports] == [True]
    assert len(ear.updates) == 3
    assert ear.tells() == open_updates
    moved = np.concatenate([array.numpy().ravel() for array in result.arrays.values()])
    first = np.concatenate([array.numpy().ravel() for array in initial().values()])
    mean = np.sum(list(ear.updates.values()), axis=0) / (3 << 20)
    assert moved == pytest.approx(first + mean, abs=1e-6), "the model moved by the mean of the true updates"


class Accident:
    """At the ``nth`` reply of a kind from one node, it is lost, and with it the node or its process."""

    def __init__(self, kind: type, *, gone: bool, node: int = 4) -> None:
        self.kind, self.gone, self.node = kind, gone, node
        self.place: World | None = None
        self.folder: Path | None = None
        self.happened = 0

    def after(self, message: Message) -> Message | None:
        node = message.metadata.src_node_id
        if node != self.node or self.happened or not isinstance(question_in(message), self.kind):
            return message
        self.happened += 1
        assert self.place is not None
        if self.gone:
            self.place.grid.nodes[node].present = False
        elif self.folder is not None:  # the process is gone; another one finds what is on disk
            self.place.grid.nodes[node].app = reopened(self.folder, len(self.place.names)).grid.nodes[node].app
        return None


def each(now: type, *later: type) -> pytest.MarkDecorator:
    """The first in every run of the tests, the others in the long ones."""
    slow = [pytest.param(kind, id=kind.__name__, marks=pytest.mark.slow) for kind in later]
    return pytest.mark.parametrize("kind", [pytest.param(now, id=now.__name__), *slow])


@each(Revealed, AbleToMask, Pledged, OwnTag)
def test_a_hospital_killed_after_any_exchange_takes_part_and_pays_once(tmp_path: Path, kind: type) -> None:
    accident = Accident(kind, gone=False)
    accident.place = place = masked_world(tmp_path, 4, after=accident.after)
    accident.folder = tmp_path
    place.run(2, scheme=EXACT, patience=0.0)
    assert accident.happened == 1
    assert place.reports[-1].verified
    assert "hospital-3" in place.reports[-1].participants
    assert charges(place)[:3] == [place.audit().rounds] * 3
    assert place.audit().failure is None


@pytest.mark.parametrize(
    ("kind", "lasting", "paid"),
    [
        pytest.param(AbleToMask, [3, 3], [2, 2, 2, 0], id="before it trained", marks=pytest.mark.slow),
        pytest.param(Pledged, [3, 3], [2, 2, 2, 1], id="before it was bound"),
        pytest.param(Revealed, [4, 3], [2, 2, 2, 1], id="after everybody was bound"),
    ],
)
def test_a_hospital_that_leaves_costs_the_others_nothing_until_masked_updates_were_asked_for(
    tmp_path: Path, kind: type, lasting: list[int], paid: list[int]
) -> None:
    """Two rounds, or two attempts at one: what left under masks for four is never masked for three."""
    accident = Accident(kind, gone=True)
    accident.place = place = masked_world(tmp_path, 4, after=accident.after)
    place.run(2, scheme=EXACT, patience=0.0)
    assert [len(report.participants) for report in place.reports] == lasting
    assert [report.verified for report in place.reports] == [kind is not Revealed, True]
    assert charges(place) == paid


class ServerKilled(BaseException):
    """The power is gone."""


def test_a_server_killed_once_it_asked_for_masked_updates_asks_fewer_for_new_ones(tmp_path: Path) -> None:
    """Those were masked for four, and a server that forgot that would ask three for the same, in vain."""
    killed: list[bool] = []

    def before(message: Message) -> Message:
        if isinstance(question_in(message), Reveal) and message.metadata.dst_node_id == 4 and not killed:
            killed.append(True)
            raise ServerKilled
        return message

    place = masked_world(tmp_path, 4, before=before)
    with pytest.raises(ServerKilled):
        place.run(1, scheme=EXACT, patience=0.0)
    place.node("hospital-3").present = False
    place.run(1, scheme=EXACT, patience=0.0)
    assert [report.declined for report in place.reports] == [{}], "nobody is asked for what it must decline"
    assert [report.participants for report in place.reports if report.verified] == [tuple(place.names[:3])]
    assert charges(place) == [2, 2, 2, 1]


@each(Reveal, Pledging, MaskedAnnouncement)
def test_a_server_killed_in_any_exchange_goes_on_and_nobody_pays_twice(tmp_path: Path, kind: type) -> None:
    killed: list[bool] = []

    def before(message: Message) -> Message:
        if isinstance(question_in(message), kind) and message.metadata.dst_node_id == 2 and not killed:
            killed.append(True)
            raise ServerKilled
        return message

    place = masked_world(tmp_path, 3, before=before)
    with pytest.raises(ServerKilled):
        place.run(1, scheme=EXACT)
    assert isinstance(terms_of(place.consortium.server_folder).scheme, ExactRounds)
    VerifiedAverage.resume(place.consortium.server_folder, place.reports.append).start(
        place.grid, num_rounds=1, timeout=5
    )
    assert [report.verified for report in place.reports] == [True]
    assert charges(place) == [1, 1, 1]
    assert (place.audit().rounds, place.audit().failure) == (1, None)


def test_members_join_and_leave_and_whoever_was_away_follows(tmp_path: Path) -> None:
    place = masked_world(tmp_path, 4)
    fresh = new_identity("hospital-4")

    def change() -> None:
        following = rotate(place, without=["hospital-0"], having={"hospital-4": fresh})
        newcomer(place, 4, fresh, following, scheme=Scheme.EXACT)
        place.node("hospital-3").present = False

    def back() -> None:
        place.node("hospital-3").present = True

    place.run(4, scheme=EXACT, choose=at_round({1: change, 2: back}), patience=0.0)
    assert all(report.verified for report in place.reports), [report.line for report in place.reports]
    assert place.reports[-1].participants == ("hospital-1", "hospital-2", "hospital-3", "hospital-4")
    found = place.audit()
    assert (found.rounds, found.failure) == (4, None)


@pytest.mark.parametrize(("policies", "rounds"), [(Scheme.EXACT, SketchRounds()), (Scheme.SKETCH, EXACT)])
def test_whoever_wants_the_other_scheme_declines_by_name_and_nothing_is_charged(
    tmp_path: Path, policies: Scheme, rounds: Any
) -> None:
    place = world(tmp_path, 3, scheme=policies)
    with pytest.raises(NoVerifiedRound, match="a round needs 3"):
        place.run(1, scheme=rounds, arrival=0.1)
    assert charges(place) == [0, 0, 0]


def test_a_policy_that_turns_to_exact_while_a_session_runs_takes_part_no_more(tmp_path: Path) -> None:
    place = world(tmp_path, 4)

    def turn() -> None:
        change_policy(place, "hospital-0", scheme='"exact"')

    place.run(2, choose=at_round({1: turn}))
    assert place.reports[1].declined == {"hospital-0": "scheme"}
    assert charges(place) == [1, 2, 2, 2]


def test_a_session_whose_rounds_would_be_too_large_is_refused_before_anybody_is_greeted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = masked_world(tmp_path, 4)
    monkeypatch.setattr(masked, "MOST_RELAYED_BYTES", 5 * 10 * 4 - 1)
    with pytest.raises(InvalidInput, match=r"4 masked updates of 10 coordinates and their sum, 200 bytes; at most 199"):
        place.run(1, scheme=EXACT)
    assert not (place.consortium.server_folder / "session.state").exists()
    assert charges(place) == [0] * 4
    place.run(1, scheme=ExactRounds(largest_roster=3), choose=lambda _round, names: names[:3])
    assert [report.verified for report in place.reports] == [True]


def test_a_choice_of_more_than_the_largest_roster_is_an_error_before_anybody_is_asked(tmp_path: Path) -> None:
    asked: list[object] = []

    def note(message: Message) -> Message:
        asked.append(question_in(message))
        return message

    place = masked_world(tmp_path, 4, before=note)
    words = r"picked 4 participants .+ permits 3: .+ nobody was asked, and nothing was trained or spent for it"
    with pytest.raises(InvalidInput, match=words):
        place.run(1, scheme=ExactRounds(largest_roster=3))
    assert {type(question).__name__ for question in asked} == {"Hello"}
    assert charges(place) == [0] * 4
    # One that is met in a later round ends the run there, and the session goes on once fewer are chosen.
    with pytest.raises(InvalidInput, match=words):
        place.run(3, scheme=ExactRounds(largest_roster=3), choose=lambda number, names: names[: 3 + number])
    assert charges(place) == [1, 1, 1, 0]
    place.run(3, scheme=ExactRounds(largest_roster=3), choose=lambda _round, names: names[1:])
    assert charges(place) == [1, 3, 3, 2]
    assert place.audit().rounds == 3


def test_a_choice_that_would_be_too_large_to_relay_is_an_error_also_where_no_largest_roster_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a session that goes on, or whose registry has grown: what was checked when it was opened is not known."""
    place = masked_world(tmp_path, 4)
    monkeypatch.setattr(masked, "MOST_RELAYED_BYTES", 5 * 10 * 4 - 1)
    place.run(1, scheme=ExactRounds(largest_roster=3), choose=lambda _round, names: names[:3])
    before = charges(place)
    with pytest.raises(InvalidInput, match=r"4 masked updates .+ nothing was trained or spent for it"):
        VerifiedAverage.resume(place.consortium.server_folder).start(place.grid, num_rounds=2)
    assert charges(place) == before


def test_a_client_refuses_a_round_too_large_for_it_before_it_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = masked_world(tmp_path, 3)
    genuine: Callable[..., None] = require_relayable
    monkeypatch.setattr("lrdp.federation.server.schemes.require_relayable", lambda *_: None)
    monkeypatch.setattr(masked, "MOST_RELAYED_BYTES", 50)
    with pytest.raises(NoVerifiedRound):
        place.run(1, scheme=EXACT)
    assert place.reports[0].declined == dict.fromkeys(place.names, "invalid")
    assert charges(place) == [0, 0, 0]
    with pytest.raises(InvalidInput):
        genuine(FixedPoint(size=10), 3)


def test_the_limit_is_what_the_documentation_says() -> None:
    for size, most in ((9_231_114, 13), (1_000_000, 133), (10_000_000, 12)):
        require_relayable(FixedPoint(size=size), most)
        with pytest.raises(InvalidInput, match="nothing was trained or spent"):
            require_relayable(FixedPoint(size=size), most + 1)
    assert relayed_bytes(FixedPoint(size=7), 3) == 4 * 7 * 4
    assert relayed_bytes(FixedPoint(size=7), 257) == 258 * 7 * 8, "more than 256 updates need 64 bits"


def test_what_exact_rounds_cannot_do_is_said_in_a_sentence(tmp_path: Path) -> None:
    place = masked_world(tmp_path, 3)
    terms = place.strategy(scheme=EXACT)._terms
    with pytest.raises(Unsupported, match="whoever leaves a buffer would spoil it"):
        BufferedAverage(terms, buffer=3)
    with pytest.raises(InvalidInput, match="same roster alone"):
        Terms(
            identity=terms.identity,
            registry=terms.registry,
            folder=terms.folder,
            scheme=EXACT,
            retries=Retries.SMALLER_ROSTER,
        )
    with pytest.raises(InvalidInput, match='retries must be "same-roster" where scheme is "exact"'):
        PeersRule(scheme=Scheme.EXACT, retries=Retries.SMALLER_ROSTER)
    with pytest.raises(InvalidInput, match="largest_roster must be at least 3, got 2"):
        ExactRounds(largest_roster=2)


def test_a_client_whose_masks_are_wrong_spoils_the_round_and_nobody_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not named: nobody could tell its masks from another's. But no wrong sum is believed."""
    genuine = ExactClient.conceal

    def conceal(self: ExactClient, train: Train, values: Whole) -> Whole:
        sent = genuine(self, train, values)
        sent[0] ^= (self.pairwise.identity.name == "hospital-1") << 30
        return sent

    monkeypatch.setattr(ExactClient, "conceal", conceal)
    place = masked_world(tmp_path, 3)
    with pytest.raises(NoVerifiedRound):
        place.run(1, scheme=EXACT)
    assert place.reports[0].problem == "hospital-2: range"
    assert charges(place) == [1, 1, 1]
