"""`lrdp guard --log --metrics --metrics-file`: one line per message with time, round and ε, and a page on loopback."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from federation.guards import running, site
from lrdp.commands.guard_log import GUARD_LOG, log_to, shown
from lrdp.commands.streams import streams
from lrdp.errors import InvalidInput
from lrdp.federation.client.forwarding import forwarded
from lrdp.federation.wire.frames import Frame

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ round – · unknown → declined \([a-z]+\) · nothing charged · "
    r"ε 0\.0000 of 8\.0 guaranteed, 8\.0000 left · 6 rounds left · \d+\.\d\d s"
)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_running_guard_logs_each_message_and_is_read_by_prometheus(tmp_path: Path) -> None:
    made, log, page, port = site(tmp_path), tmp_path / "guard.log", tmp_path / "guard.prom", free_port()
    options = ("--log", str(log), "--metrics", f"127.0.0.1:{port}", "--metrics-file", str(page))
    without_greek = {**os.environ, "PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"}
    with running(made.command(*options), env=without_greek) as (process, _):
        forwarded(Frame(b"nonsense"), str(made.socket))
        process.send_signal(signal.SIGSTOP)  # the line is written after the answer
        process.send_signal(signal.SIGCONT)
        forwarded(Frame(b"nonsense"), str(made.socket))
        with urlopen(f"http://127.0.0.1:{port}/metrics") as read:
            text = read.read().decode()
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert said.isascii()
    assert "epsilon 0.0000 of 8.0 guaranteed" in said
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["lrdp_guard_epsilon_left"].samples[0].value == 8.0
    assert families["lrdp_guard_rounds_left"].samples[0].value == 6
    assert families["lrdp_guard_answers"].samples[0].value >= 1
    assert list(text_string_to_metric_families(page.read_text()))
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    guarding, *lines = log.read_text(encoding="utf-8").splitlines()
    assert "guarding hospital-0: ε 0.00 of 8.0 guaranteed, 6 rounds left" in guarding
    answered = [line for line in lines if LINE.fullmatch(line)]
    assert len(answered) == 2, lines


@contextmanager
def logging_to(as_json: bool, path: Path) -> Iterator[logging.Logger]:
    """As a guard does, and afterwards as before."""
    logger = logging.getLogger("lrdp")
    before = (logger.handlers[:], logger.propagate, logger.level)
    try:
        log_to(as_json, path)
        yield GUARD_LOG
    finally:
        for handler in logger.handlers:
            with suppress(OSError):
                handler.close()
        logger.handlers[:], logger.propagate, level = before
        logger.setLevel(level)


def test_why_something_failed_may_quote_a_record_and_is_not_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A simulation in this process, of another test, keeps what clients say for its own file.
    monkeypatch.setattr(logging.getLogger("lrdp.client"), "propagate", True)
    path = tmp_path / "guard.log"
    with logging_to(False, path):
        logging.getLogger("lrdp.client").warning("hospital refused (failed): Mrs Jones")
        try:
            raise ValueError("Mrs Jones")
        except ValueError:
            logging.getLogger("lrdp.guard").exception("a message could not be taken")
        path.rename(tmp_path / "guard.log.1")  # as logrotate does
        logging.getLogger("lrdp.guard").info("round 3")
    assert (tmp_path / "guard.log.1").read_text() == ""
    assert path.read_text().endswith("Z round 3\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    said = capsys.readouterr().err
    assert "hospital refused (failed): Mrs Jones" in said
    assert "ValueError: Mrs Jones" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_log_on_a_full_disk_is_said_once_for_each_place_and_the_guard_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w") as nothing_fits:
        monkeypatch.setattr("sys.stdout", nothing_fits)
        with streams(), logging_to(True, Path("/dev/full")) as log:
            for number in range(3):
                log.info(f"round {number}")
    assert capsys.readouterr().err.splitlines() == [
        f"The log cannot be written to {place}: No space left on device; the guard goes on, and lines are missing "
        f"there."
        for place in ("standard output", "/dev/full")
    ]


def test_a_log_whose_folder_is_gone_is_said_again_only_after_it_was_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with logging_to(False, folder / "guard.log") as log:
        for number in range(3):
            folder.rename(tmp_path / f"gone-{number}")
            log.info("lost")
            log.info("lost")
            folder.mkdir()
            log.info(f"round {number}")
    lines = capsys.readouterr().err.splitlines()
    said = [line for line in lines if "guard.log: No such file or directory; the guard goes on" in line]
    assert (len(said), len(lines)) == (3, 3 + 9), lines
    assert (folder / "guard.log").read_text().endswith("Z round 2\n")


def test_a_page_that_can_no_longer_be_written_is_logged_once_and_the_guard_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("lrdp"), "propagate", True)
    folder = tmp_path / "metrics"
    folder.mkdir()
    with shown(None, folder / "guard.prom") as show:
        show("one")
        folder.rename(tmp_path / "gone")
        show("two")
        show("three")
        folder.mkdir()
        show("four")
        assert (folder / "guard.prom").read_text() == "four"
    (sentence,) = caplog.messages
    assert sentence == (
        f"metrics cannot be written to {folder / 'guard.prom'}: No such file or directory; the guard goes on."
    )


def test_a_guard_that_does_not_start_leaves_an_earlier_page_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "guard.prom"
    page.write_text("# HELP earlier\n")
    before = page.stat()
    with shown(None, page):
        pass
    assert (page.read_text(), page.stat().st_mtime_ns) == ("# HELP earlier\n", before.st_mtime_ns)
    assert [each.name for each in tmp_path.iterdir()] == ["guard.prom"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_guard_that_is_started_again_goes_on_in_its_log(tmp_path: Path, as_json: bool) -> None:
    for number in range(3):
        with logging_to(as_json, tmp_path / "guard.log") as log:
            log.warning("start %d", number)
    lines = (tmp_path / "guard.log").read_text().splitlines()
    assert [f"start {number}" in line for number, line in enumerate(lines)] == [True] * 3


def test_a_log_or_a_page_that_cannot_be_written_is_said_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be written"):
        log_to(False, tmp_path)
    with pytest.raises(InvalidInput, match="metrics cannot be written"), shown(None, tmp_path / "no" / "x"):
        pass
    ledger = tmp_path / "ledger.db"
    ledger.write_bytes(b"SQLite format 3")
    with pytest.raises(InvalidInput, match="of another kind, and is not overwritten"), shown(None, ledger):
        pass
    registry = tmp_path / "registry.json"
    registry.write_text('{"members": []}')
    for other in (ledger, registry):
        with pytest.raises(InvalidInput, match="not a guard's log"):
            log_to(False, other)
    assert registry.read_text() == '{"members": []}'
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="a pipe without a reader"):
        log_to(False, tmp_path / "pipe")
    assert ledger.read_bytes() == b"SQLite format 3"
    with pytest.raises(InvalidInput, match="loopback address alone"), shown("0.0.0.0:9464", None):
        pass
