"""A round whose tags do not add up names its liar: in the run, and later by a command, from what the server kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from federation.hostile import VICTIM, Stage, refused, stage
from federation.masked import charges, question_in
from federation.worlds import World, world
from lrdp import cli
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.standing import Standing
from lrdp.federation.server.blaming import blamed
from lrdp.federation.wire.case_files import read_case
from lrdp.federation.wire.disputing import Deposed, Dispute
from lrdp.federation.wire.flower import to_records
from lrdp.federation.wire.questions import Answer, OwnTag, Question, to_frame
from lrdp.integrity import Gathering, Published, Room, Tags, Wire, client, judged, model_hash, server
from lrdp.integrity.client import Tagged
from lrdp.integrity.fixed_point import aggregate_hash, next_model

LIAR = 3
"""The node of hospital-2."""


class Framing:
    """hospital-2 signs a tag that is not its update's, with its own keys; and says nothing of it, if it is ``mute``."""

    def __init__(self, *, mute: bool = False) -> None:
        self.place: World | None = None
        self.mute, self.asked = mute, 0

    def after(self, message: Message) -> Message | None:
        answer = question_in(message)
        if message.metadata.src_node_id != LIAR or self.place is None:
            return message
        if isinstance(answer, Deposed):
            self.asked += 1
            return None if self.mute else message
        if isinstance(answer, OwnTag):
            message.content = lied(self.place.consortium.client("hospital-2"), answer)
        return message


def lied(home: ClientHome, answer: OwnTag) -> RecordDict:
    """Another tag in the place of a hospital's own, signed with its keys."""
    state = Standing(home.standing).load(home.identity())
    assert isinstance(state, Tagged)
    wire = Wire(state.ready.position)
    lie = client.sign_tag(state.ready.identity, state.header, wire.read_tag(answer.tag).value ^ 1)
    return to_records(to_frame(OwnTag(tag=wire.tag(lie))))


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """The command line, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["lrdp", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_a_client_that_frames_the_server_is_named_by_the_run_and_by_the_command_and_then_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    framing = Framing()
    framing.place = place = world(tmp_path, 4, after=framing.after)
    place.run(4, patience=0.0)
    assert [report.verified for report in place.reports] == [False, False, False, True]
    assert all("hospital-2 lied" in report.problem for report in place.reports[:3])
    assert place.reports[3].participants == ("hospital-0", "hospital-1", "hospital-3")
    assert charges(place) == [2, 2, 1, 2], "to ask who lied costs nothing; to go on without it costs a new update"
    cases = sorted(place.consortium.server_folder.glob("case-*.safetensors"))
    assert len(cases) == 3
    assert all(case.stat().st_mode & 0o777 == 0o600 for case in cases)

    pin = place.consortium.registry().digest.hex()
    code, out, err = called(capsys, "blame", str(cases[0]), "--pin", pin, "--json")
    record = json.loads(out)
    assert code == 0
    assert list(record["liars"]) == ["hospital-2"]
    assert (record["round"], record["attempt"], record["server"], record["did_not_depose"]) == (1, 1, None, [])
    assert "Round 1, attempt 1: hospital-2 lied." in err
    code, _, err = called(capsys, "blame", str(cases[0]), "--pin", "0" * 64)
    assert (code, "REGISTRY_REFUSED" in err) == (5, True)
    code, _, err = called(capsys, "blame", str(place.consortium.server_folder), "--pin", pin)
    assert (code, "holds 3 cases" in err) == (2, True)
    cut = tmp_path / "case.safetensors"
    cut.write_bytes(cases[0].read_bytes()[:-5])
    code, _, err = called(capsys, "blame", str(cut), "--pin", pin)
    assert (code, "is not a case of a failed round, or is damaged" in err) == (2, True)


@pytest.mark.slow
def test_a_client_that_lied_and_says_nothing_is_named_for_its_silence(tmp_path: Path) -> None:
    framing = Framing(mute=True)
    framing.place = place = world(tmp_path, 4, after=framing.after)
    place.run(4, patience=0.0)
    assert framing.asked == 3
    assert all("hospital-2 did not depose" in report.problem for report in place.reports[:3])
    assert place.reports[3].participants == ("hospital-0", "hospital-1", "hospital-3")


class ByHand:
    """Brings questions to the stage's hospitals, as a courier does."""

    def __init__(self, given: Stage) -> None:
        self._given = given

    def exchange(self, questions: Mapping[str, Question]) -> dict[str, Answer]:
        return {name: self._given.ask(question, name) for name, question in questions.items()}


def altered(gathering: Gathering, room: Room) -> tuple[Published, Any]:
    """What a cheat publishes: fifty quanta more in a coordinate, every hash and signature made for it."""
    published, said = server.publish(gathering, room)
    total: np.ndarray = said.aggregate.copy()
    total[3] += 50
    idle, point = published.idle, published.idle.position.session.parameters.point
    following = next_model(idle.model, total, len(said.header.roster), point)
    header = replace(said.header, aggregate=aggregate_hash(total), next_model=model_hash(following))
    signature = idle.identity.sign(b"server/v1", header.digest)
    changes: dict[str, Any] = {"header": header, "signature": signature, "aggregate": total}
    return replace(published, **changes, next_model=following), replace(said, **changes)


def test_a_server_that_altered_the_sum_convicts_itself_and_clients_depose_only_when_tags_fail(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.greet()
    asked = Dispute(tags=b"\x06\x07")
    made.gather()
    refused(made, asked, "behind")  # it has signed no tag yet
    announcement, names = made.coordinator.announce(altered)
    for name in names:
        tagged = made.ask(announcement, name)
        assert isinstance(tagged, OwnTag), tagged
        made.coordinator.tag(tagged.tag)
    assert not made.coordinator.proved()
    published, wire = made.coordinator.state(Published), made.wire
    refused(made, Dispute(tags=wire.tags(Tags(tags=published.tags[1:]), published.header)), "tags-incomplete")
    forged = (*published.tags[:2], replace(published.tags[2], value=published.tags[2].value ^ 1))
    refused(made, Dispute(tags=wire.tags(Tags(tags=forged), published.header)), "tag-sig")
    before = [made.account(name) for name in made.names]
    problem, liars = blamed(made.coordinator, ByHand(made))  # type: ignore[arg-type]
    assert problem.endswith("the server lied")
    assert liars == set()
    (path,) = made.world.consortium.server_folder.glob("case-*.safetensors")
    failed = read_case(path)
    for update in (None, *published.updates):
        found = judged(replace(failed, opened=update))
        assert (found.clients, found.pairs, found.silent, bool(found.server)) == ({}, (), (), True)
    assert [made.account(name) for name in made.names] == before

    # The next attempt is honest: its tags add up, so nobody deposes, then or after it was accepted.
    made.coordinator.give_up()
    made.gather()
    made.publish()
    good = Dispute(tags=made.coordinator.all_tags())
    refused(made, good, "invalid")
    refused(made, Dispute(tags=wire.tags(Tags(tags=published.tags), published.header)), "tag-sig")
    made.coordinator.conclude()
    made.close()
    refused(made, good, "behind")
    assert [made.account(name)[0] for name in made.names] == [1, 1, 1]
    assert made.names[0] == VICTIM
