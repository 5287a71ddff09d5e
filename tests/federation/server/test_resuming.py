"""A server that is killed goes on in the same session with the same chain, and nobody pays twice for a round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord

from federation.test_retries import Watch
from federation.worlds import TRAINING, World, initial, world
from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation import BufferedAverage, Order, RoundReport, RunResult, VerifiedAverage
from lrdp.federation.server import archive
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.resuming import opened, terms_of
from lrdp.federation.server.saved_state import STATE_FILE, read_state
from lrdp.federation.wire.averaging import Averaging
from lrdp.federation.wire.model_files import read_model
from lrdp.integrity import Session

LONG = replace(TRAINING, rounds=60)
WRITES_IN_A_ROUND = 9
"""State and heads before the sum is shown; model, heads and state after it is proved; a receipt and a report."""


class Killed(BaseException):
    """The power is gone: nothing that would tidy up may catch it as an error."""


class Power:
    """Goes off at the ``last`` write in a folder: before it counts, or right after."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.left, self.after = folder, 0, False
        beside, append = files._beside, archive._append

        @contextmanager
        def guarded(path: Path, mode: int, publish: Callable[[str, Path], None]) -> Iterator[object]:
            with beside(path, mode, publish) as file:
                yield file
                self.spend(path, before=True)
            self.spend(path, before=False)

        def torn(path: Path, line: str) -> None:
            try:
                self.spend(path, before=True)
            except Killed:
                path.write_text((path.read_text() if path.exists() else "") + line[: len(line) // 2])
                raise
            append(path, line)
            self.spend(path, before=False)

        monkeypatch.setattr(files, "_beside", guarded)
        monkeypatch.setattr(archive, "_append", torn)

    def spend(self, path: Path, *, before: bool) -> None:
        if path.parent != self.folder or before is self.after:
            return
        self.left -= 1
        if self.left == 0:
            raise Killed


def charges(place: World) -> list[int]:
    return [len(place.books(name).charges.states) for name in place.names]


def receipts_files(place: World) -> list[Path]:
    return list(place.consortium.server_folder.glob("receipts-*.txt"))


def test_a_server_killed_at_any_write_goes_on_in_the_same_chain_and_nobody_pays_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = world(tmp_path, 3, trainings=dict.fromkeys(["hospital-0", "hospital-1", "hospital-2"], LONG))
    place.run(1)
    state = read_state(place.consortium.server_folder)
    assert state is not None
    power = Power(place.consortium.server_folder, monkeypatch)
    killed = 0
    for power.after in (False, True):
        for write in range(1, WRITES_IN_A_ROUND + 4):
            power.left = write
            with pytest.raises(Killed):
                VerifiedAverage.resume(place.consortium.server_folder).start(place.grid, num_rounds=50, timeout=5)
            killed += 1
    power.left = 0
    rounds = read_state(place.consortium.server_folder).progress.tried + 1  # type: ignore[union-attr]
    result = VerifiedAverage.resume(place.consortium.server_folder).start(place.grid, num_rounds=rounds, timeout=5)
    found = place.audit()
    assert killed == 2 * (WRITES_IN_A_ROUND + 3)
    assert len(receipts_files(place)) == 1
    assert found.failure is None
    assert found.rounds > 4
    assert found.participants == dict.fromkeys(place.names, found.rounds)
    # Each was charged once for each round: what a dead server had asked for was answered from the outbox.
    assert charges(place) == [found.rounds] * 3
    for line in (place.consortium.server_folder / "rounds.jsonl").read_text().splitlines():
        assert json.loads(line)["verified"]
    ended = read_state(place.consortium.server_folder)
    assert ended is not None
    assert ended.hello == state.hello
    (last,) = place.consortium.server_folder.glob("model-*.safetensors")
    assert found.position is not None
    assert read_model(last).digest == found.position.model.hex()
    assert {name: array.numpy().tolist() for name, array in result.arrays.items()} == {
        name: values.tolist() for name, values in read_model(last).layout.arrays(read_model(last).vector).items()
    }


WRITES_AT_THE_OPENING = 5
"""The registry, the first model, heads, the state, and the first line of the receipts."""


def test_a_server_killed_while_it_opens_a_session_leaves_the_receipts_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an auditor would find two histories of which one has nothing in it."""
    terms = world(tmp_path, 3).strategy()._terms
    power = Power(tmp_path, monkeypatch)
    for power.after in (False, True):
        for write in range(1, WRITES_AT_THE_OPENING + 1):
            power.folder, power.left = tmp_path / f"{write}-{power.after}", write
            with pytest.raises(Killed):
                opened(replace(terms, folder=power.folder), initial())
            coordinator = opened(replace(terms, folder=power.folder), initial())
            coordinator.write_down()  # as every run does first: a line that was torn is written again
            (receipts,) = power.folder.glob("receipts-*.txt")
            assert receipts == coordinator.archive.receipts
            assert receipts.read_text().split() == [Session.decode(coordinator.hello.session).encode().hex()]
            assert opened(replace(terms, folder=power.folder), None).hello == coordinator.hello


def test_control_a_server_that_forgot_its_state_starts_another_chain(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    place.run(1)
    (place.consortium.server_folder / STATE_FILE).unlink()
    place.run(1)
    assert len(receipts_files(place)) == 2


KILL = """
import os, signal, sys
from pathlib import Path
from federation.worlds import World, initial, reopened

place = reopened(Path(sys.argv[1]), 3)


def killed(number, arrays):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)


place.strategy().start(place.grid, initial(), num_rounds=3, timeout=5, evaluate_fn=killed)
"""


def test_the_same_script_again_after_kill_9_makes_the_rounds_that_were_left(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILL, str(tmp_path)]
    ended = subprocess.run(command, env=settings, capture_output=True, check=False)
    assert ended.returncode == -9, ended.stderr.decode()
    assert charges(place) == [2] * 3
    place.run(3)
    assert [report.model for report in place.reports] == [2]
    assert charges(place) == [3] * 3
    assert len(receipts_files(place)) == 1
    assert place.audit().rounds == 3


def test_the_log_says_where_the_session_lies_whatever_folder_flower_runs_the_app_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A relative path is looked for where the SuperLink was started: it may be another consortium's."""
    monkeypatch.chdir(tmp_path)
    place = world(Path(), 3)
    assert not place.consortium.server_folder.is_absolute()
    with caplog.at_level("INFO", "flwr"):
        place.run(1)
        place.run(2)
    lines = [record.getMessage() for record in caplog.records if " the session in " in f" {record.getMessage()}"]
    begun = [record.getMessage() for record in caplog.records if "Beginning a session in" in record.getMessage()]
    assert begun == [f"Beginning a session in {tmp_path / place.consortium.server_folder}."]
    assert lines == [f"Going on with the session in {tmp_path / place.consortium.server_folder} after round 1."]


@pytest.mark.parametrize("buffered", [False, True])
def test_the_same_command_after_the_end_spends_nothing_and_more_rounds_go_on(
    tmp_path: Path, buffered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Repeated by mistake, or by a supervisor: the budget is for the rounds that somebody asked for."""
    place = world(tmp_path, 4)

    def again(rounds: int) -> RunResult:
        return either(place, buffered).start(place.grid, initial(), num_rounds=rounds, timeout=5)

    first, paid = again(2), charges(place)
    with caplog.at_level("INFO", "flwr"):
        second = again(2)
    assert "has all of the 2 rounds that are asked for" in caplog.text
    assert charges(place) == paid
    assert same_model(first, second)
    assert second.reason == ""
    third = again(3)
    assert not same_model(first, third)
    assert [len(receipts_files(place)), place.audit().rounds] == [1, 3]


def either(place: World, buffered: bool) -> VerifiedAverage | BufferedAverage:
    terms = place.strategy()._terms
    return BufferedAverage(terms, place.reports.append, buffer=4) if buffered else place.strategy()


def same_model(one: RunResult, other: RunResult) -> bool:
    return all(np.array_equal(one.arrays[name].numpy(), other.arrays[name].numpy()) for name in initial())


@pytest.mark.parametrize("buffered", [False, True])
def test_a_round_whose_evaluation_fails_has_its_line_all_the_same(tmp_path: Path, buffered: bool) -> None:
    place = world(tmp_path, 4)

    def failing(number: int, _arrays: ArrayRecord) -> MetricRecord:
        if number:
            raise ZeroDivisionError
        return MetricRecord()

    with pytest.raises(ZeroDivisionError):
        either(place, buffered).start(place.grid, initial(), num_rounds=2, timeout=5, evaluate_fn=failing)
    (line,) = (place.consortium.server_folder / "rounds.jsonl").read_text().splitlines()
    assert json.loads(line)["verified"] is True
    assert [report.verified for report in place.reports] == [True]


def killed_once_its_sum_was_shown(place: World) -> None:
    """A server that dies in the first of two rounds; one of those who saw the sum leaves meanwhile."""

    def dying(coordinator: Coordinator, courier: Courier, _report: RoundReport) -> RoundReport:
        announcement, names = coordinator.announce()
        courier.exchange(dict.fromkeys(names, announcement))
        raise Killed

    strategy = VerifiedAverage(place.strategy(patience=0.0)._terms, settle=dying)
    with pytest.raises(Killed):
        strategy.start(place.grid, initial(), num_rounds=2, timeout=5)
    place.grid.nodes[4].present = False


def test_a_sum_that_was_published_is_not_forgotten_with_the_server(tmp_path: Path) -> None:
    """Else those who are left would be asked for the same updates again, and their difference would be the leaver's."""
    watch = Watch()
    place = watch.world(tmp_path)
    killed_once_its_sum_was_shown(place)
    place.run(2, patience=0.0)
    assert charges(place) == [3, 3, 3, 1]  # one for what was shown in vain, and one for each round
    assert [report.participants for report in place.reports] == [tuple(place.names[:3])] * 2
    assert place.audit().failure is None
    assert watch.updates[4][0].tolist() not in watch.differences()


def test_whoever_comes_back_late_to_a_sum_that_was_shown_is_waited_for_and_nobody_pays_again(tmp_path: Path) -> None:
    """The server died before it knew that the sum had failed: it must not forget that it is worth waiting for."""
    watch = Watch()
    place = watch.world(tmp_path)
    killed_once_its_sum_was_shown(place)
    watch.leaver = 0  # it stays, once it is back
    late = threading.Timer(1.0, setattr, (place.grid.nodes[4], "present", True))
    late.start()
    place.run(2, patience=30.0, arrival=60.0)
    late.join()
    assert charges(place) == [2, 2, 2, 2]
    assert [report.participants for report in place.reports] == [tuple(place.names)] * 2


def test_a_buffer_that_waits_is_not_trained_again_after_the_servers_death(tmp_path: Path) -> None:
    place = world(tmp_path, 4, trainings=dict.fromkeys([f"hospital-{n}" for n in range(4)], LONG))
    terms = place.strategy(min_roster=3, patience=0.0)._terms

    def dies(report: RoundReport) -> None:
        if report.model == 1:
            raise Killed

    with pytest.raises(Killed):
        BufferedAverage(terms, dies, buffer=3).start(place.grid, initial(), num_rounds=4, timeout=5)
    before = sum(charges(place))
    waiting = read_state(place.consortium.server_folder).progress.waiting  # type: ignore[union-attr]
    assert waiting
    BufferedAverage(terms, place.reports.append, buffer=3).start(place.grid, num_rounds=4, timeout=5)
    assert place.audit().rounds == 4
    assert len(receipts_files(place)) == 1
    # 2 buffers of 3 are left; of their 6 updates those that waited were paid for before, and one may wait at the end.
    assert sum(charges(place)) - before <= 2 * 3 - len(waiting) + 1


def test_a_buffer_whose_sum_was_shown_is_tried_again_as_it_was_after_the_servers_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(leaver=0)
    place = watch.world(tmp_path, 4)
    terms = place.strategy(min_roster=3)._terms

    def dies(*_: object) -> str:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Coordinator, "tag", dies)
        with pytest.raises(Killed):
            BufferedAverage(terms, buffer=3).start(place.grid, initial(), num_rounds=1, timeout=5)
    assert len(watch.sums) == 1
    BufferedAverage(terms, place.reports.append, buffer=3).start(place.grid, num_rounds=1, timeout=5)
    assert [report.verified for report in place.reports] == [True]
    first, second = watch.sums.values()
    assert first.tolist() == second.tolist()
    assert charges(place) == [1] * 4


def test_damaged_receipts_are_refused_and_an_unfinished_line_of_them_is_cut_off(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    place.run(1)
    (receipts,) = receipts_files(place)
    whole = receipts.read_bytes()
    for damaged in (whole[:-9] + b"\n", whole.replace(b"\n", b"\nxyz\n", 1), b"00\n"):
        receipts.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="must be restored"):
            VerifiedAverage.resume(place.consortium.server_folder).start(place.grid, num_rounds=2)
    receipts.write_bytes(whole + whole[:99])
    VerifiedAverage.resume(place.consortium.server_folder).start(place.grid, num_rounds=1)
    assert receipts.read_bytes() == whole


@pytest.mark.parametrize("damage", ["cut", "foreign", "checksum", "older"])
def test_a_damaged_or_foreign_state_is_refused_in_one_sentence(tmp_path: Path, damage: str) -> None:
    place = world(tmp_path, 3)
    folder = place.consortium.server_folder
    state = folder / STATE_FILE
    place.strategy()._terms.open(initial())
    older = state.read_bytes()
    if damage == "older":
        model = next(folder.glob("model-*.safetensors"))
        kept = model.read_bytes()
        state_of = state.read_bytes()
        place.run(1)
        state.write_bytes(state_of)
        model.write_bytes(kept)
        reason = "do not lead to the same place"
    else:
        data = {"cut": older[:-30], "foreign": b"hello\n", "checksum": older.replace(b'"written":0', b'"written":1')}
        state.write_bytes(data[damage])
        reason = "cannot be resumed from"
    with pytest.raises(InvalidInput, match=reason) as refused:
        VerifiedAverage.resume(folder).start(place.grid, num_rounds=2)
    assert "\n" not in str(refused.value)
    state.write_bytes(older)


def test_a_state_of_other_terms_or_another_model_is_refused(tmp_path: Path) -> None:
    place = world(tmp_path, 4)
    place.strategy()._terms.open(initial())
    with pytest.raises(InvalidInput, match="another server's key, registry, least roster, scheme or rounding"):
        place.run(1, min_roster=4)
    other = ArrayRecord(dict(list(initial().items())[:1]))
    with pytest.raises(InvalidInput, match=r"the session of another model.* copy this one's identity.pem"):
        place.strategy().start(place.grid, other, num_rounds=1)
    with pytest.raises(InvalidInput, match=f"holds no {STATE_FILE}"):
        terms_of(tmp_path)
    assert charges(place) == [0] * 4


def test_the_state_holds_no_secret_and_is_its_owners(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    place.run(1)
    folder = place.consortium.server_folder
    identity = place.consortium.server_identity()
    for path in [folder / STATE_FILE, *folder.glob("model-*")]:
        assert path.stat().st_mode & 0o777 == 0o600
        data = path.read_bytes()
        for secret in (identity.signing_secret, identity.agreement_secret):
            assert secret not in data
            assert secret.hex().encode() not in data


def test_the_last_and_the_best_model_are_kept_and_every_so_many_if_asked(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    scores = {1: 0.25, 2: 0.75, 3: 0.5, 4: float("nan"), 5: 0.5}

    def evaluate(number: int, _arrays: ArrayRecord) -> MetricRecord | None:
        return MetricRecord({"accuracy": scores[number]}) if number else None

    strategy = place.strategy(order=Order(steps=1), keep_every=4)
    result = strategy.start(place.grid, initial(), num_rounds=5, timeout=5, evaluate_fn=evaluate)
    assert kept_models(place) == ["00002", "00004", "00005"]
    assert result.best is not None
    assert result.best.stem[-5:] == "00002"
    lines = (place.consortium.server_folder / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["metrics"]["accuracy"] for record in records] == [0.25, 0.75, 0.5, None, 0.5]
    assert [record["verified"] for record in records] == [True] * 5
    allowed = {
        *("declined", "metrics", "model", "participants", "problem", "round", "seconds", "session", "staleness"),
        *("time", "verified"),
    }
    assert set(records[0]) == allowed
    assert [record["round"] for record in records] == [1, 2, 3, 4, 5]


def kept_models(place: World) -> list[str]:
    return sorted(path.stem[-5:] for path in place.consortium.server_folder.glob("model-*.safetensors"))


def write_state_as_before(place: World) -> None:
    """Leave the state as an earlier version wrote it."""
    folder = place.consortium.server_folder
    state = read_state(folder)
    assert state is not None
    record = json.loads(state.encode().partition(b"\n")[2])
    del record["keeping"]
    record["progress"]["over"] = True
    body = json.dumps(record, separators=(",", ":")).encode()
    (folder / STATE_FILE).write_bytes(sha256(body).hexdigest().encode() + b"\n" + body + b"\n")


@pytest.mark.parametrize("earlier", [False, True])
def test_a_server_that_resumes_from_its_folder_keeps_the_models_that_it_was_told_to(
    tmp_path: Path, earlier: bool
) -> None:
    place = world(tmp_path, 3)
    place.run(5, order=Order(steps=1), keep_every=2, average=Averaging(rounds=2))
    assert kept_models(place) == ["00002", "00004", "00005"]
    if earlier:
        write_state_as_before(place)
    resumed = VerifiedAverage.resume(place.consortium.server_folder)
    resumed.start(place.grid, num_rounds=5, timeout=5)
    assert kept_models(place) == ["00002", "00004", "00005"]
    resumed.start(place.grid, num_rounds=7, timeout=5)
    wanted = ["00002", "00004", "00006", "00007"]
    assert kept_models(place) == (sorted([*wanted, "00005"]) if earlier else wanted)
    assert (len(list(place.consortium.server_folder.glob("average-*-00007.safetensors"))) == 1) is not earlier
    place.strategy().start(place.grid, num_rounds=7, timeout=5)
    assert kept_models(place) == ["00007"], "control: whoever states terms that keep no more has no more"


@pytest.mark.parametrize("earlier", [False, True])
def test_a_session_of_which_no_more_is_kept_has_one_model_however_often_it_resumes(
    tmp_path: Path, earlier: bool
) -> None:
    place = world(tmp_path, 3)
    place.run(2)
    for rounds in (3, 4):
        if earlier:
            write_state_as_before(place)
        VerifiedAverage.resume(place.consortium.server_folder).start(place.grid, num_rounds=rounds, timeout=5)
        assert kept_models(place) == [f"{rounds:05}"]


@pytest.mark.parametrize("buffered", [False, True])
def test_the_best_model_is_not_lost_where_a_server_dies_before_it_has_judged_it(tmp_path: Path, buffered: bool) -> None:
    place = world(tmp_path, 3)
    dying, judged = {2}, []

    def evaluate(number: int, _arrays: ArrayRecord) -> MetricRecord:
        if number in dying:
            dying.clear()
            raise Killed
        judged.append(number)
        return MetricRecord({"accuracy": 0.75 if number == 2 else 0.25})

    def start() -> RunResult:
        terms = place.strategy()._terms
        strategy = BufferedAverage(terms, buffer=3) if buffered else VerifiedAverage(terms)
        return strategy.start(place.grid, initial(), num_rounds=3, timeout=5, evaluate_fn=evaluate)

    with pytest.raises(Killed):
        start()
    result = start()
    assert judged == [0, 1, 2, 3]
    assert result.best is not None
    assert result.best.exists()
    assert read_model(result.best).round == 2
    assert result.evaluate_metrics_serverapp[2]["accuracy"] == 0.75


def test_whoever_evaluates_without_a_score_is_told_that_no_best_model_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = world(tmp_path, 3)
    found = MetricRecord({"perplexity": 12.5})
    with caplog.at_level("INFO", "flwr"):
        result = place.strategy().start(
            place.grid, initial(), num_rounds=1, timeout=5, evaluate_fn=lambda _number, _arrays: found
        )
    assert result.best is None
    assert "No best model was kept" in caplog.text
