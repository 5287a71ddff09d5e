"""Dashboards, with the real packages and off line: public numbers arrive, nothing else does, and none harms a round."""

from __future__ import annotations

import json
import logging
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from flwr.app import ArrayRecord, MetricRecord
from prometheus_client.parser import text_string_to_metric_families

from federation.worlds import World, initial, world
from lrdp.errors import InvalidInput
from lrdp.federation import BufferedAverage, RoundReport
from lrdp.federation.client import forwarding, participant
from lrdp.federation.server import observers
from lrdp.federation.server.nodes import SILENT
from lrdp.federation.server.observers import (
    WORDS,
    Prometheus,
    mlflow,
    numbers,
    tensorboard,
    weights_and_biases,
)

REPORTS = [
    RoundReport(
        model=0,
        participants=("st-elsewhere", "county-general", "princeton"),
        declined={"seattle": "budget", "sacred-heart": "record 17 of Mrs Jones", "mercy": "budget"},
        staleness={"princeton": 2, "county-general": 0},
        verified=True,
        seconds=3.25,
        metrics={"accuracy": 0.625, "loss": float("nan")},
    ),
    RoundReport(model=1, participants=("princeton",), problem="st-elsewhere left", seconds=0.5),
]
PRIVATE = ["st-elsewhere", "county-general", "princeton", "seattle", "sacred-heart", "mercy", "Jones", "left"]
FIRST = {
    "participants": 3,
    "declined": 3,
    "declined/budget": 2,
    "declined/other": 1,
    "stalest": 2,
    "verified": 1,
    "seconds": 3.25,
    "metric/accuracy": 0.625,
}


def told(observe: Callable[[RoundReport], None]) -> None:
    for report in REPORTS:
        observe(report)


def no_name_in(folder: Path) -> None:
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert written
    for path in written:
        content = path.read_bytes()
        assert [word for word in PRIVATE if word.encode() in content] == [], path


def test_what_leaves_are_numbers_without_a_name() -> None:
    assert numbers(REPORTS[0]) == FIRST
    assert numbers(REPORTS[1])["verified"] == 0


def test_every_constant_that_a_client_declines_with_is_known_here() -> None:
    sent = {*participant._CODES.values(), forwarding.NO_GUARD, SILENT.code, "failed", "malformed"}
    assert sent <= WORDS


def test_tensorboard_reads_the_rounds_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told(tensorboard(tmp_path))
    read = EventAccumulator(str(tmp_path)).Reload()
    assert {name: read.Scalars(name)[0].value for name in read.Tags()["scalars"]} == FIRST
    assert [(event.step, event.value) for event in read.Scalars("verified")] == [(1, 1.0), (2, 0.0)]
    no_name_in(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_mlflow_reads_the_rounds_back(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    store = f"sqlite:///{tmp_path}/mlflow.db"
    told(mlflow(store, "pilot", "first"))
    told(mlflow(store, "pilot"))  # another run of the same experiment
    client = MlflowClient(tracking_uri=store)
    made = client.get_experiment_by_name("pilot")
    assert made is not None
    last, first = client.search_runs([made.experiment_id])
    assert [(each.step, each.value) for each in client.get_metric_history(first.info.run_id, "verified")] == [
        (1, 1.0),
        (2, 0.0),
    ]
    assert first.data.metrics["metric/accuracy"] == 0.625
    assert set(first.data.metrics) == set(FIRST)
    assert first.data.tags == {"mlflow.runName": "first"}, "no user, no source, no host"
    assert (first.info.status, first.info.end_time is None) == ("FINISHED", False), "whenever the server ends"
    assert last.data.metrics == first.data.metrics
    no_name_in(tmp_path)


def test_weights_and_biases_keeps_the_rounds_and_nothing_of_the_machine(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import wandb

    observe = weights_and_biases("pilot", tmp_path, offline=True)
    sys.stderr.write("princeton in the console\n")
    told(observe)
    wandb.teardown()  # until its service has written everything
    (kept,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    content = kept.read_bytes()
    for name in FIRST:
        assert name.encode() in content
    assert b"0.625" in content
    for secret in (platform.node(), sys.executable, "constraints", Path(__file__).name):
        assert secret.encode() not in content
    assert not list(tmp_path.rglob("requirements.txt"))
    no_name_in(tmp_path)
    assert "princeton in the console" in capfd.readouterr().err


def scraped(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read().decode()
    assert not [word for word in PRIVATE if word in text]
    families = text_string_to_metric_families(text)
    return {_key(sample): sample.value for family in families for sample in family.samples}


def _key(sample: Any) -> str:
    return " ".join([sample.name.removeprefix("lrdp_server_"), *sample.labels.values()])


def test_prometheus_reads_the_rounds_from_loopback() -> None:
    shown = Prometheus("127.0.0.1:0")
    try:
        assert scraped(shown.port) == {}
        told(shown)
        found = scraped(shown.port)
    finally:
        shown.close()
    assert found.pop("attempt_end_seconds") > 1e9
    assert found == {
        "verified_round": 1,
        "attempts_total": 2,
        "attempt_verified": 0,
        "attempt_participants": 1,
        "attempt_seconds": 0.5,
        "declined_total budget": 2,
        "declined_total other": 1,
    }


@pytest.mark.parametrize("missing", ["tensorboard", "mlflow", "wandb"])
def test_a_package_that_is_missing_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    makers = {
        "tensorboard": lambda: tensorboard(tmp_path),
        "mlflow": lambda: mlflow("sqlite://", "pilot"),
        "wandb": lambda: weights_and_biases("pilot", tmp_path),
    }
    monkeypatch.setattr(observers, "find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(InvalidInput, match=rf"{missing} is missing: install it with pip install 'lrdp\[tracking\]'"):
        makers[missing]()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("package", "make", "word"),
    [
        ("mlflow", lambda file: mlflow(f"{file}", "pilot"), "sqlite:///mlflow.db"),  # MLflow's own advice
        ("tensorboard", tensorboard, "Error"),
    ],
)
def test_a_place_that_a_package_does_not_take_is_said_before_anything_starts(
    tmp_path: Path, package: str, make: Callable[[Path], object], word: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InvalidInput, match=f"{package} cannot begin in .*{word}.* Nothing was started."):
        make(tmp_path / "file")


def accuracy(number: int, _arrays: ArrayRecord) -> MetricRecord | None:
    return MetricRecord({"accuracy": 0.5 + number / 8}) if number else None


def synchronous(place: World, *watching: Callable[[RoundReport], None]) -> None:
    strategy = place.strategy()
    strategy._observers = (*watching, place.reports.append)
    strategy.start(place.grid, initial(), num_rounds=2, timeout=5, evaluate_fn=accuracy)


def buffered(place: World, *watching: Callable[[RoundReport], None]) -> None:
    strategy = BufferedAverage(place.strategy()._terms, *watching, place.reports.append, buffer=3)
    strategy.start(place.grid, initial(), num_rounds=2, timeout=5, evaluate_fn=accuracy)


@pytest.mark.parametrize("run", [synchronous, buffered])
def test_an_observer_that_raises_harms_neither_the_round_nor_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, run: Callable[..., None]
) -> None:
    def broken(_report: RoundReport) -> None:
        raise ConnectionError("the dashboard is away")

    place = world(tmp_path, 3)
    with caplog.at_level(logging.INFO):
        run(place, broken)
    assert [(report.verified, report.metrics["accuracy"]) for report in place.reports] == [(True, 0.625), (True, 0.75)]
    assert all(report.seconds > 0 for report in place.reports), "they are told when it is over"
    assert (place.audit().failure, place.audit().rounds) == (None, 2)
    assert sum("an observer failed" in record.getMessage() for record in caplog.records) == 2
    # From every server: a line for each attempt in Flower's log, and the same in its folder.
    lines = [record.getMessage() for record in caplog.records if record.name == "flwr"]
    assert lines[1:3] == [report.line for report in place.reports]
    assert lines[1].endswith("accuracy 0.625")
    logged = (place.consortium.server_folder / "rounds.jsonl").read_text().splitlines()
    (receipts,) = place.consortium.server_folder.glob("receipts-*.txt")
    session = receipts.stem.removeprefix("receipts-")
    times = [json.loads(line)["time"] for line in logged]
    assert logged == [
        report.as_json(session=session, time=time) for report, time in zip(place.reports, times, strict=True)
    ]
    assert all(datetime.now(UTC) - datetime.fromisoformat(time) < timedelta(hours=1) for time in times)
