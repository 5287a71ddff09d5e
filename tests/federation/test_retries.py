"""A participant leaves after the sum was published: nobody is shown the difference, unless every policy says so."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message

from federation.hostile import change_policy
from federation.worlds import World, initial, world
from lrdp.errors import NoVerifiedRound
from lrdp.federation import BufferedAverage, RoundReport, Terms, VerifiedAverage
from lrdp.federation.client.state_file import _SAVED, _SAVED_V1, Saved
from lrdp.federation.server.convening import Convener
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.repetitions import MOST_FAILURES, Repetitions, ShownSum
from lrdp.federation.wire.flower import from_message
from lrdp.federation.wire.questions import Announcement, Contributed, Decline, OwnTag, read_message
from lrdp.integrity.receipts import RoundReceipt
from lrdp.integrity.repeats import Roster
from lrdp.ledger.policy import Retries

LEAVER = 4
"""The node that takes its leave: hospital-3."""


class Watch:
    """Everything that peers see on the way out, and what clients send back; one participant leaves before its tag."""

    def __init__(self, leaver: int = LEAVER) -> None:
        self.sums: dict[bytes, np.ndarray] = {}
        self.updates: dict[int, list[np.ndarray]] = {}
        self.leaver = leaver
        self.place: World | None = None

    def out(self, message: Message) -> Message:
        question = read_message(from_message(message))
        if isinstance(question, Announcement):
            self.sums[question.publish] = np.frombuffer(bytes(question.aggregate or b""), "<i4")
        return message

    def back(self, message: Message) -> Message | None:
        answer, node = read_message(from_message(message)), message.metadata.src_node_id
        if isinstance(answer, Contributed) and answer.values:
            known = self.updates.setdefault(node, [])
            values = whole(answer.values)
            if not any(np.array_equal(values, one) for one in known):
                known.append(values)
        if isinstance(answer, OwnTag) and node == self.leaver:
            assert self.place is not None
            self.place.grid.nodes[node].present = False
            return None
        return message

    def world(self, folder: Path, count: int = 4) -> World:
        self.place = world(folder, count, before=self.out, after=self.back)
        return self.place

    def differences(self) -> list[list[int]]:
        """What whoever saw all sums can subtract."""
        sums = list(self.sums.values())
        return [(one - other).tolist() for one in sums for other in sums]


def whole(body: Iterable[int]) -> np.ndarray:
    """Three bytes a coordinate, little-endian, read here without the code that wrote them."""
    triples = np.frombuffer(bytes(body), np.uint8).reshape(-1, 3).astype(np.int64)
    values = triples @ np.array([1, 1 << 8, 1 << 16])
    return np.where(values >= 1 << 23, values - (1 << 24), values)


def charges(place: World) -> list[int]:
    return [len(place.books(name).charges.states) for name in place.names]


def test_by_default_those_who_stay_make_new_updates_and_no_difference_is_anybodys(tmp_path: Path) -> None:
    watch = Watch()
    place = watch.world(tmp_path)
    place.run(2, patience=0.0)
    assert [(report.verified, len(report.participants)) for report in place.reports] == [(False, 4), (True, 3)]
    assert charges(place) == [2, 2, 2, 1]
    assert [len(watch.updates[node]) for node in (1, 2, 3, LEAVER)] == [2, 2, 2, 1]
    first, second = watch.sums.values()
    assert first.tolist() == np.sum([updates[0] for updates in watch.updates.values()], axis=0).tolist()
    assert second.tolist() == np.sum([watch.updates[node][1] for node in (1, 2, 3)], axis=0).tolist()
    assert watch.updates[LEAVER][0].tolist() not in watch.differences()


def test_control_where_all_policies_say_so_the_same_updates_are_summed_without_it_and_the_difference_is_its_own(
    tmp_path: Path,
) -> None:
    watch = Watch()
    place = watch.world(tmp_path)
    for name in place.names:
        change_policy(place, name, retries='"smaller-roster"')
    place.run(2, retries=Retries.SMALLER_ROSTER)
    assert [(report.verified, len(report.participants)) for report in place.reports] == [(False, 4), (True, 3)]
    assert charges(place) == [1] * 4
    assert watch.updates[LEAVER][0].tolist() in watch.differences()


def test_a_server_that_would_do_so_against_their_policies_is_declined_by_all(tmp_path: Path) -> None:
    watch = Watch()
    place = watch.world(tmp_path)
    with pytest.raises(NoVerifiedRound):
        place.run(2, retries=Retries.SMALLER_ROSTER)
    assert [report.verified for report in place.reports] == [False, False]
    assert place.reports[1].declined == dict.fromkeys(place.names[:3], "update-spent")
    assert charges(place) == [1] * 4
    assert len(watch.sums) == 1


def test_the_same_roster_is_waited_for_and_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    place = watch.world(tmp_path)
    seen: list[list[str]] = []

    def returns(_round: int, present: list[str]) -> list[str]:
        seen.append(list(present))
        return present

    strategy = place.strategy(choose=returns, patience=30.0)
    genuine = Convener.chosen

    def chosen(convener: Convener, names: list[str], waited: float) -> list[str]:
        found = list(genuine(convener, names, waited))
        if not found:  # the server waits: now it comes back, and answers
            watch.leaver = 0
            place.grid.nodes[LEAVER].present = True
        return found

    monkeypatch.setattr(Convener, "chosen", chosen)
    strategy.start(place.grid, initial(), num_rounds=2, timeout=60)
    assert [(report.verified, len(report.participants)) for report in place.reports] == [(False, 4), (True, 4)]
    assert charges(place) == [1] * 4
    assert len(seen) == 1


def test_what_was_signed_in_an_attempt_that_failed_is_kept_on_both_sides(tmp_path: Path) -> None:
    watch = Watch()
    place = watch.world(tmp_path)
    place.run(2, patience=0.0)
    (kept,) = place.consortium.server_folder.glob("attempts-*.txt")
    (word,) = (RoundReceipt.decode(bytes.fromhex(line)) for line in kept.read_text().split())
    assert word.header.names == tuple(place.names)
    assert [tag.name for tag in word.tags] == place.names[:3]
    registry = place.consortium.registry()
    for name in place.names[:3]:
        disputed = place.consortium.client(name).standing / "disputed.txt"
        (own,) = (RoundReceipt.decode(bytes.fromhex(line)) for line in disputed.read_text().split())
        assert own.header == word.header
        assert own.tags == tuple(tag for tag in word.tags if tag.name == name)
        assert own.signature == word.signature
        assert registry.by_name[name].name == name


def test_a_buffer_of_which_one_left_is_given_up_and_its_updates_are_not_summed_again(tmp_path: Path) -> None:
    watch = Watch(leaver=3)
    place = watch.world(tmp_path, 5)
    terms = Terms(
        identity=place.consortium.server_identity(),
        registry=place.consortium.registry(),
        folder=place.consortium.server_folder,
        patience=0.0,
        arrival=20.0,
    )
    BufferedAverage(terms, place.reports.append, buffer=3).start(place.grid, initial(), num_rounds=2, timeout=20)
    assert [report.verified for report in place.reports].count(True) == 2
    assert not place.reports[0].verified
    assert watch.updates[3][0].tolist() not in watch.differences()
    assert place.audit().failure is None


def test_a_round_is_made_of_new_updates_where_one_of_the_few_has_lost_its_place_and_shows_none_again(
    tmp_path: Path,
) -> None:
    """Else it would decline the same order for good, and with it the session would be over."""
    lost: list[int] = []

    def lose(message: Message) -> Message | None:
        first = isinstance(read_message(from_message(message)), Contributed) and message.metadata.src_node_id == 3
        if first and not lost:
            lost.append(3)  # its answer, and then its disk
            (place.consortium.client("hospital-2").standing / "state").write_bytes(b"damaged")
            return None
        return message

    place = world(tmp_path, 3, after=lose)
    place.run(3)
    assert [report.verified for report in place.reports] == [False, False, True]
    assert place.reports[1].declined == {"hospital-2": "update-spent"}
    assert charges(place) == [2] * 3
    assert place.audit().rounds == 1


# ---------------------------------------- what the server tries
FOUR, THREE = ("a", "b", "c", "d"), ("a", "b", "c")


def failed(retries: Retries, times: int = 1) -> Repetitions:
    made = Repetitions(retries)
    for _ in range(times):
        made.publish(FOUR)
        made.fail(FOUR, ["d"])
    return made


def test_a_roster_is_tried_again_with_its_own_updates_and_another_with_new_ones() -> None:
    made = failed(Retries.SAME_ROSTER)
    assert made.again(["d", "c", "b", "a", "e"]) == FOUR
    assert made.again(THREE) is None
    assert made.unproved
    assert (made.renewal(FOUR), made.renewal(THREE)) == (0, 1)
    made.publish(THREE)
    assert (made.renewal(FOUR), made.renewal(THREE), made.renewal(("a", "b", "e"))) == (0, 1, 2)


def test_whoever_is_silent_too_often_is_left_out() -> None:
    made = failed(Retries.SAME_ROSTER, MOST_FAILURES)
    assert made.again(FOUR) is None
    assert not made.unproved
    assert made.hopeless == {"d"}


@pytest.mark.parametrize(
    ("roster", "invited", "allowed"),
    [(FOUR, FOUR, True), (THREE, FOUR, False), (THREE, THREE, True), (FOUR, (*FOUR, "e"), False)],
)
def test_a_roster_is_repeated_as_a_whole_and_not_met_by_chance(roster: Roster, invited: Roster, allowed: bool) -> None:
    assert failed(Retries.SAME_ROSTER).allow(roster, invited) is allowed


def test_smaller_rosters_are_those_who_stayed_with_the_same_updates() -> None:
    made = failed(Retries.SMALLER_ROSTER)
    assert made.again(FOUR) == THREE
    assert made.renewal(THREE) == 0
    assert made.allow(("a", "b", "c"), THREE)


def test_whoever_kept_a_roster_waiting_has_another_chance_where_no_round_can_be_made_without_it(tmp_path: Path) -> None:
    """In a roster whose sum nobody has seen, and so with new updates; one whose sum is out is not tried for ever."""
    place = world(tmp_path, 4, min_roster=3)
    strategy = place.strategy()
    strategy.start(place.grid, initial(), num_rounds=1, timeout=5)
    first, second, third, fourth = place.names
    failed = ShownSum(roster=(first, second, third), renewal=0, failures=MOST_FAILURES, silent=(second, third))
    strategy.coordinator.repetitions = Repetitions(Retries.SAME_ROSTER, [failed])
    assert strategy.coordinator.repetitions.hopeless == {second, third}
    assert list(strategy._run.chosen([first, third, fourth], 1e9)) == [first, third, fourth]
    assert list(strategy._run.chosen([first, second, third], 1e9)) == []


def test_of_those_who_kept_rosters_waiting_no_more_are_taken_along_than_a_round_needs() -> None:
    made = failed(Retries.SAME_ROSTER)
    made.bury(FOUR, ["a", "b"])
    assert made.besides(FOUR, 2) == ["c", "d"]
    assert made.besides(FOUR, 3) == ("a", "c", "d"), "all of them have seen the sum over all"
    made.publish(("a", "c", "d"))
    assert made.besides(FOUR, 3) == ("b", "c", "d")
    assert made.besides(FOUR, 4) == ()
    assert made.besides((*FOUR, "e"), 3) == ["c", "d", "e"]
    assert "a, b did not show" in made.lacking


def test_a_server_that_is_started_again_tries_a_shown_roster_once_more() -> None:
    """What kept it waiting may have been mended meanwhile; one that still waits is given up at once."""
    made = failed(Retries.SAME_ROSTER, MOST_FAILURES)
    again = Repetitions(Retries.SAME_ROSTER, [one.once_more() for one in made.shown()])
    assert again.again(FOUR) == FOUR
    again.fail(FOUR, ["d"])
    assert again.again(FOUR) is None


def once_shown(folder: Path, count: int) -> World:
    """A server published a sum, died, and is started again with patience."""
    place = world(folder, count, min_roster=3)

    def dying(coordinator: Coordinator, courier: Courier, _report: RoundReport) -> RoundReport:
        announcement, names = coordinator.announce()
        courier.exchange(dict.fromkeys(names, announcement))
        raise KeyboardInterrupt

    strategy = VerifiedAverage(place.strategy()._terms, settle=dying)
    with pytest.raises(KeyboardInterrupt):
        strategy.start(place.grid, initial(), num_rounds=3, timeout=5)
    return place


def ledger_away(place: World, declines: int) -> None:
    """The disk of hospital-2 is not there for its next answers."""
    ledger = place.consortium.client("hospital-2").folder / "ledger.db"
    ledger.rename(ledger.with_name("away.db"))
    left = iter(range(declines))

    def back(message: Message) -> Message:
        if message.metadata.src_node_id == 3 and isinstance(read_message(from_message(message)), Decline):
            next(left, None)
            if next(left, None) is None and not ledger.exists():
                ledger.with_name("away.db").rename(ledger)
        return message

    place.grid._after = back


@pytest.mark.parametrize("count", [3, 4])
def test_a_passing_fault_at_one_of_those_who_saw_a_sum_costs_nobody_another_update(tmp_path: Path, count: int) -> None:
    place = once_shown(tmp_path, count)
    ledger_away(place, 1)
    place.strategy(patience=30.0).start(place.grid, None, num_rounds=1, timeout=5)
    assert [report.verified for report in place.reports] == [True]
    assert charges(place) == [1] * count


def test_a_session_whose_sum_waits_for_a_broken_disk_says_so_and_goes_on_once_it_is_mended(tmp_path: Path) -> None:
    place = once_shown(tmp_path, 3)
    ledger_away(place, 10**6)
    with pytest.raises(NoVerifiedRound, match="hospital-2 did not show the updates in it again"):
        place.strategy(patience=0.0, arrival=1.0).start(place.grid, None, num_rounds=9, timeout=5)
    folder = place.consortium.client("hospital-2").folder
    (folder / "away.db").rename(folder / "ledger.db")
    tried = len(place.reports)
    place.strategy().start(place.grid, None, num_rounds=3 + tried, timeout=5)
    assert place.reports[tried].verified
    assert charges(place)[0] == len(place.reports) - tried


def test_an_upgrade_in_the_midst_of_a_round_costs_nobody_another_update(tmp_path: Path) -> None:
    """Version 0.1 kept no head beside its state, so there is nothing that the books could lack."""
    place = once_shown(tmp_path, 3)
    for name in place.names:
        session = place.consortium.client(name).standing
        now = Saved(**_SAVED.decode((session / "state").read_bytes()))
        (session / "state").write_bytes(_SAVED_V1.encode(now))
        (session / "head").unlink()
    place.strategy().start(place.grid, None, num_rounds=1, timeout=5)
    assert [report.verified for report in place.reports] == [True]
    assert charges(place) == [1] * 3


def test_the_others_make_the_round_where_two_of_them_have_lost_what_they_showed(tmp_path: Path) -> None:
    """Too few without both, and all have seen the sum over all: with one of the two it is another roster."""
    place = once_shown(tmp_path, 4)
    for name in ("hospital-0", "hospital-1"):
        (place.consortium.client(name).standing / "head").unlink()
    place.strategy(patience=0.0).start(place.grid, None, num_rounds=4, timeout=5)
    assert [report.verified for report in place.reports][-2:] == [True, True]
    assert place.audit().failure is None
