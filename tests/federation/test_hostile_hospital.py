"""A hospital with real keys that need not play by the rules: its answers stop nobody else, and convict nobody else."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from lrdp.errors import NoVerifiedRound
from lrdp.federation import BufferedAverage, ExactRounds
from lrdp.federation.wire.case_files import read_case
from lrdp.federation.wire.disputing import Deposed
from lrdp.federation.wire.flower import to_records
from lrdp.federation.wire.masked import AbleToMask
from lrdp.federation.wire.questions import Able, Answer, Contributed, Counted, Decline, OwnTag, TrainedAhead, to_frame
from lrdp.integrity import SessionKey, judged
from lrdp.integrity.depositions import Deposition

from .hostile import change_policy
from .masked import charges, masked_world, question_in
from .server.test_blaming import lied
from .worlds import World, initial, world

HOSTILE = 4
"""The node of hospital-3, whose answers are not its client's."""
Lie = Callable[[Any], Answer]


class Impostor:
    """In the place of answers of one kind it gives others; ``heard`` is what the other hospitals said."""

    def __init__(self, kind: type, lie: Lie, *nodes: int) -> None:
        self.kind, self.lie, self.nodes, self.told = kind, lie, nodes or (HOSTILE,), 0
        self.heard: list[Any] = []

    def after(self, message: Message) -> Message:
        answer = question_in(message)
        if not isinstance(answer, self.kind):
            return message
        if message.metadata.src_node_id in self.nodes:
            self.told += 1
            message.content = to_records(to_frame(self.lie(answer)))
        else:
            self.heard.append(answer)
        return message


LARGEST = struct.pack("<d", 1.7e308)


def counted(folder: Path, share: bytes, *nodes: int) -> tuple[World, dict[str, float]]:
    """A round of four whose model is counted, in which these nodes answer so."""
    impostor = Impostor(Counted, lambda answer: replace(answer, share=share), *nodes)
    place = world(folder, 4, after=impostor.after)
    for name in place.names:
        change_policy(place, name, metrics='["correct"]')
    result = place.strategy(metrics=("correct",)).start(place.grid, initial(), num_rounds=1, timeout=5)
    assert impostor.told == max(1, len(nodes))
    return place, {name: float(value) for name, value in result.evaluate_metrics_clientapp[1].items()}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "share",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(struct.pack("<d", float("inf")), id="no number", marks=pytest.mark.slow),
    ],
)
def test_a_count_that_is_none_ends_no_run_and_is_left_out_of_the_mean(tmp_path: Path, share: bytes) -> None:
    place, found = counted(tmp_path, share)
    assert [report.verified for report in place.reports] == [True]
    assert found["clients"] == 3
    assert abs(found["accuracy"]) < 10, "the mean is that of the others"
    assert place.audit().rounds == 1


@pytest.mark.slow
def test_counts_whose_sum_no_double_holds_end_no_run(tmp_path: Path) -> None:
    _, found = counted(tmp_path, LARGEST, 3, 4)
    assert found["clients"] == 4


def own(key: bytes, **changes: str | bytes) -> bytes:
    return replace(SessionKey.decode(key), **changes).encode()  # type: ignore[arg-type]


def another_s(impostor: Impostor) -> bytes:
    return next(answer.key for answer in impostor.heard if isinstance(answer, AbleToMask))


NO_KEYS: dict[str, Callable[[Impostor, AbleToMask], Answer]] = {
    "nothing": lambda _, answer: replace(answer, key=b""),
    "other bytes": lambda _, answer: replace(answer, key=b"k" * 100),
    "a changed key": lambda _, answer: replace(answer, key=own(answer.key, agreement_key=b"\x09" + bytes(31))),
    "another's name": lambda _, answer: replace(answer, key=own(answer.key, name="hospital-0")),
    "another's key": lambda impostor, answer: replace(answer, key=another_s(impostor)),
    "yes without a key": lambda _, answer: Able(accept=answer.accept),
}


@pytest.mark.parametrize("name", NO_KEYS)
def test_a_hospital_that_announces_no_mask_key_of_its_own_is_left_out_and_the_others_go_on(
    tmp_path: Path, name: str
) -> None:
    """They would all refuse a round with it, and nobody could say because of whom."""

    def lie(answer: Answer) -> Answer:
        assert isinstance(answer, AbleToMask)
        return NO_KEYS[name](impostor, answer)

    impostor = Impostor(AbleToMask, lie)
    place = masked_world(tmp_path, 4, after=impostor.after)
    place.run(2, scheme=ExactRounds(), patience=0.0)
    assert [(report.verified, report.participants) for report in place.reports] == [(True, tuple(place.names[:3]))] * 2
    assert [report.declined for report in place.reports] == [{"hospital-3": "invalid"}] * 2
    assert charges(place) == [2, 2, 2, 0]
    assert impostor.told >= 2


def as_another(answer: Deposed) -> Deposed:
    word = Deposition.decode(answer.word)
    return Deposed(word=replace(word, bare=replace(word.bare, name="hospital-0")).encode())


def void(answer: Deposed) -> Deposed:
    word = Deposition.decode(answer.word)
    return Deposed(word=replace(word, bare=replace(word.bare, value=word.bare.value ^ 1)).encode())


def endless(answer: Deposed) -> Deposed:
    """More than a case has room for."""
    return Deposed(word=replace(Deposition.decode(answer.word), masks=(5,) * 500_000).encode())


@pytest.mark.parametrize(
    "made_up", [as_another, *(pytest.param(one, marks=pytest.mark.slow) for one in (void, endless))]
)
def test_a_liar_that_makes_up_a_word_convicts_itself_and_neither_its_server_nor_a_peer(
    tmp_path: Path, made_up: Callable[[Deposed], Deposed]
) -> None:
    """It signs a wrong tag; asked for its word, it says what nobody signed. No update is opened for that."""

    def lie(answer: Answer) -> Answer:
        return made_up(answer) if isinstance(answer, Deposed) else answer

    impostor = Impostor(Deposed, lie)

    def after(message: Message) -> Message:
        answer = question_in(message)
        if isinstance(answer, OwnTag) and message.metadata.src_node_id == HOSTILE:
            message.content = lied(place.consortium.client("hospital-3"), answer)
        return impostor.after(message)

    place = world(tmp_path, 4, after=after)
    place.run(4, patience=0.0)
    problem = "sum-mismatch: a participant's tag is wrong: hospital-3 did not depose"
    assert [report.problem for report in place.reports] == [problem] * 3 + [""]
    assert place.reports[3].participants == tuple(place.names[:3])
    cases = sorted(place.consortium.server_folder.glob("case-*.safetensors"))
    assert len(cases) == impostor.told == 3
    for case in cases:
        failed = read_case(case)
        found = judged(failed)
        assert (failed.opened, len(failed.depositions)) == (None, 3)
        assert (found.clients, found.pairs, found.silent, found.server) == ({}, (), ("hospital-3",), "")


ENOUGH = 40
"""Answers of a hospital to which a server that goes on as before would listen for ever."""


def buffered(folder: Path, count: int, impostor: Impostor, rounds: int, **terms: Any) -> World:
    def after(message: Message) -> Message | None:
        assert impostor.told < ENOUGH, "the buffer is asked of the same hospital for ever"
        answer = question_in(message)
        if isinstance(answer, TrainedAhead) and message.metadata.src_node_id in impostor.nodes:
            message.content = to_records(to_frame(replace(answer, trained_from=0)))  # as if it had waited longest
        return impostor.after(message)

    place = world(folder, count, after=after, min_roster=3)
    started = place.strategy(min_roster=3, **terms)._terms
    BufferedAverage(started, place.reports.append, buffer=3).start(place.grid, initial(), num_rounds=rounds, timeout=5)
    return place


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda _: Decline(code="failed"), id="it declines"),
        pytest.param(lambda answer: replace(answer, update=b"x"), id="it hands in nothing", marks=pytest.mark.slow),
    ],
)
def test_a_buffer_is_made_without_whoever_trained_by_its_own_word_and_hands_nothing_in(
    tmp_path: Path, lie: Lie
) -> None:
    impostor = Impostor(Contributed, lie)
    place = buffered(tmp_path, 4, impostor, 3, patience=1.0, arrival=60.0)
    verified = [report.participants for report in place.reports if report.verified]
    assert verified == [tuple(place.names[:3])] * 3
    assert len(place.reports) <= 6, "it is tried once in a round, and then left alone"
    assert charges(place)[:3] == [3] * 3


def test_a_buffer_that_cannot_do_without_it_ends_the_run_in_time(tmp_path: Path) -> None:
    impostor = Impostor(Contributed, lambda _: Decline(code="failed"), 1)
    with pytest.raises(NoVerifiedRound, match=r"no buffer of 3 came together in 2\.0 seconds"):
        buffered(tmp_path, 3, impostor, 1, patience=1.0, arrival=2.0)
    assert impostor.told >= 1


@pytest.mark.slow
def test_the_next_buffer_is_made_without_whoever_signs_no_tag(tmp_path: Path) -> None:
    impostor = Impostor(OwnTag, lambda _: Decline(code="failed"))
    place = buffered(tmp_path, 4, impostor, 2, patience=0.5, arrival=60.0)
    assert [report.participants for report in place.reports if report.verified] == [tuple(place.names[:3])] * 2
