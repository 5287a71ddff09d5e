"""`lrdp guard --log --metrics --metrics-file`: one line per message with time, round and ε, and a page on loopback."""

from __future__ import annotations

import logging
import re
import signal
import socket
import stat
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from federation.guards import running, site
from lrdp.commands.guard_log import log_to, shown
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
    with running(made.command(*options)) as (process, _):
        forwarded(Frame(b"nonsense"), str(made.socket))
        process.send_signal(signal.SIGSTOP)  # the line is written after the answer
        process.send_signal(signal.SIGCONT)
        forwarded(Frame(b"nonsense"), str(made.socket))
        with urlopen(f"http://127.0.0.1:{port}/metrics") as read:
            text = read.read().decode()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["lrdp_guard_epsilon_left"].samples[0].value == 8.0
    assert families["lrdp_guard_rounds_left"].samples[0].value == 6
    assert families["lrdp_guard_answers"].samples[0].value >= 1
    assert list(text_string_to_metric_families(page.read_text()))
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    guarding, *lines = log.read_text(encoding="utf-8").splitlines()
    assert "guarding hospital-0: ε 0.00 of 8.0 spent" in guarding
    answered = [line for line in lines if LINE.fullmatch(line)]
    assert len(answered) == 2, lines


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("lrdp")


def test_why_something_failed_may_quote_a_record_and_is_not_in_the_file(
    tmp_path: Path, logger: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A simulation in this process, of another test, keeps what clients say for its own file.
    monkeypatch.setattr(logging.getLogger("lrdp.client"), "propagate", True)
    path, before = tmp_path / "guard.log", (logger.handlers[:], logger.propagate, logger.level)
    try:
        log_to(False, path)
        logging.getLogger("lrdp.client").warning("hospital refused (failed): Mrs Jones")
        try:
            raise ValueError("Mrs Jones")
        except ValueError:
            logging.getLogger("lrdp.guard").exception("a message could not be taken")
        path.rename(tmp_path / "guard.log.1")  # as logrotate does
        logging.getLogger("lrdp.guard").info("round 3")
    finally:
        for handler in logger.handlers:
            handler.close()
        logger.handlers[:], logger.propagate, level = before
        logger.setLevel(level)
    assert (tmp_path / "guard.log.1").read_text() == ""
    assert path.read_text().endswith("Z round 3\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    said = capsys.readouterr().err
    assert "hospital refused (failed): Mrs Jones" in said
    assert "ValueError: Mrs Jones" in said


def test_a_log_or_a_page_that_cannot_be_written_is_said_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be written"):
        log_to(False, tmp_path)
    with pytest.raises(InvalidInput, match="metrics cannot be written"), shown(None, tmp_path / "no" / "x"):
        pass
    with pytest.raises(InvalidInput, match="loopback address alone"), shown("0.0.0.0:9464", None):
        pass
