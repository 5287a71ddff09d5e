"""What came from outside never steers the screen: whatever the command, only letters and line ends are printed."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrity.parties import federation, honest_round, identity
from ledger.worlds import POLICY, World, request, round_trip
from lrdp.cli import main
from lrdp.commands import guard_log, output
from lrdp.federation.server.round_report import RoundReport
from lrdp.integrity import history
from lrdp.integrity.cards import card, registry_record
from lrdp.ledger import records
from lrdp.ledger.export import write_export
from lrdp.ledger.reports import report_of
from lrdp.report import run_table, statement_pages
from lrdp.screen import visible

ESCAPES = (
    "\x1b[31m",  # red
    "\x1b]8;;http://evil.example\x07here\x1b]8;;\x07",  # a link
    "\x9b2J",  # clears the screen, in one byte less
    "\r\x7f\b\x00",
    "\u202egnp.\u2066\u200b\u2028",  # right to left, and what is not seen at all
    "[red][link=http://evil.example]",  # rich's own
    "\nleft  ε = 8.0000",  # a line of its own
)
HOSTILE = "evil" + "".join(ESCAPES)


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def lrdp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run one command line, and check all that it wrote."""

    def run(*words: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["lrdp", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        ended = Ended(int(stopped.value.code or 0), *capsys.readouterr())
        assert steering(ended.out + ended.err) == []
        assert "left  ε = 8.0000" not in (ended.out + ended.err).splitlines()
        return ended

    return run


def steering(text: str) -> list[str]:
    return [letter for letter in text if not letter.isprintable() and letter != "\n"]


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The books of somebody who writes what he likes, with every hash and signature in order."""
    opening, reservation = records.opening, records.reservation
    monkeypatch.setattr(records, "opening", lambda *given: opening(*given)._replace(client=HOSTILE, unit=HOSTILE))
    monkeypatch.setattr(records, "reservation", lambda *given: reservation(*given)._replace(accountant=HOSTILE))
    world = World(folder=tmp_path)
    with world.create() as ledger:
        round_trip(ledger, request())
        write_export(ledger, tmp_path / "export.txt")
        (tmp_path / "report.txt").write_text(report_of(ledger.books).signed(world.key) + "\n")
    return tmp_path / "export.txt"


def test_a_hostile_export_is_shown_letter_by_letter(lrdp: Callable[..., Ended], export: Path) -> None:
    for words in (["ledger", "show"], ["statement"], ["ledger", "import"]):
        shown = lrdp(*words, export)
        assert shown.code == 0
        assert "\\x1b[31m" in shown.out
        assert "\\u202e" in shown.out
        assert "[red]" in shown.out
        assert lrdp(*words, export, "--json").code == 0
    assert lrdp("ledger", "verify", export).code == 0
    assert "evil\\x1b[31m" in lrdp("ledger", "import", export.with_name("report.txt")).out


def test_a_hostile_name_is_letters_on_the_page_too(lrdp: Callable[..., Ended], export: Path, tmp_path: Path) -> None:
    lrdp("statement", export, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert steering(page) == []
    assert "Privacy statement of evil\\x1b[31m" in page


def test_hostile_files_are_named_and_quoted_letter_by_letter(lrdp: Callable[..., Ended], tmp_path: Path) -> None:
    path = tmp_path / f"{HOSTILE.replace('/', '').replace(chr(0), '')}.txt"
    path.write_text(f"lrdp-ledger-export-1\n{'00' * 32}\t{HOSTILE}\n", encoding="utf-8")
    for words in (
        ["ledger", "show", path],
        ["ledger", "verify", path, "--key", HOSTILE],
        ["ledger", "import", path],
        ["ledger", "import", "--fleet", path],
        ["statement", path],
        ["registry", "verify", path],
        ["verify", path, "--unpinned"],
        ["verify", path, "--pin", HOSTILE.replace("\0", "")],
        ["keys", "show", path],
        ["epsilon", HOSTILE.replace("\0", "")],
    ):
        assert lrdp(*words).code != 0


@pytest.mark.parametrize("key", [line.split(" = ")[0] for line in POLICY.splitlines() if " = " in line])
def test_a_hostile_policy_is_refused_letter_by_letter(lrdp: Callable[..., Ended], tmp_path: Path, key: str) -> None:
    (old,) = (line for line in POLICY.splitlines() if line.startswith(f"{key} ="))
    quoted = json.dumps(HOSTILE)
    for line in (f"{key} = {quoted}", f"{old}\n{quoted} = 1", f"{key} = [{quoted}]"):
        (tmp_path / "policy.toml").write_text(POLICY.replace(old, line), encoding="utf-8")
        lrdp("init", "--folder", tmp_path, "--policy-only")
        lrdp("init", "--folder", tmp_path)
        shutil.rmtree(tmp_path / "keys", ignore_errors=True)
        (tmp_path / "ledger.db").unlink(missing_ok=True)


def test_a_hostile_registry_is_refused_letter_by_letter(lrdp: Callable[..., Ended], tmp_path: Path) -> None:
    session = federation(4).session
    path = tmp_path / "registry.json"
    entry = {**card(identity("a").member), "name": HOSTILE}
    for record in ({**registry_record(session.registry), "members": [entry]}, entry, {HOSTILE: HOSTILE}, HOSTILE):
        path.write_text(json.dumps(record), encoding="utf-8")
        assert lrdp("registry", "verify", path).code == 5
        assert lrdp("registry", "add", path, path).code == 5
    receipts = tmp_path / "receipts"
    lines = [history.session_line(session), history.step_line(honest_round(federation(4)).encode()), HOSTILE]
    receipts.write_text("\n".join(lines), encoding="utf-8")
    assert lrdp("verify", receipts, "--unpinned").code == 5


def test_a_hostile_model_is_shown_letter_by_letter(
    lrdp: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"from torch import nn\nmodel = nn.ModuleDict({{{HOSTILE.replace('.', '')!r}: nn.BatchNorm1d(2)}})\n"
    (tmp_path / "hostile_models.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "\\x1b" in "".join(lrdp("check", "hostile_models:model").out.split())
    assert lrdp("check", "hostile_models:model", "--json").code == 2


def test_what_peers_say_in_a_run_is_letters(capsys: pytest.CaptureFixture[str]) -> None:
    attempt = {
        **{"round": 1, "attempt": 1, "participants": [HOSTILE], "away": [HOSTILE], "killed": [HOSTILE]},
        **{"refused": {HOSTILE: HOSTILE}, "verified": False, "verdicts": {}, "problem": HOSTILE},
        **{"epsilon_least": 0.1, "epsilon_most": 0.2, "accuracy": 0.5},
    }
    client = {**{"client": HOSTILE, "rounds": 1, "steps": 1, "lost": 0, "epsilon": 1.0, "budget": 8.0}}
    output.screen().print(run_table.line(attempt))
    output.screen().print(run_table.table({"clients": [{**client, "refusals": {HOSTILE: 2}}]}))
    printed = capsys.readouterr().out
    assert steering(printed) == []
    assert "[red]" in "".join(printed.split())
    report = RoundReport(model=0, declined={HOSTILE: HOSTILE}, problem=HOSTILE)
    assert steering(report.line + report.as_json()) == []


@pytest.mark.parametrize("as_json", [False, True])
def test_what_peers_say_to_a_guard_is_letters_in_its_log(
    as_json: bool, capsys: pytest.CaptureFixture[str], logging_as_before: None
) -> None:
    guard_log.log_to(as_json, None)
    logger = logging.getLogger("lrdp.guard")
    logger.warning("refused (invalid): %s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("a message could not be taken")
    written = "".join(capsys.readouterr())
    assert steering(written) == []
    assert "evil" in written
    assert as_json or "Traceback" in written


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    logger = logging.getLogger("lrdp")
    before = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = before[:2]
    logger.setLevel(before[2])


@given(st.text())
def test_visible_text_has_one_line_and_is_not_changed_again(text: str) -> None:
    shown = visible(text)
    assert steering(shown) == []
    assert "\n" not in shown
    assert visible(shown) == shown
    assert shown == text or not text.isprintable()


def test_control_without_it_an_export_steers_the_screen(
    lrdp: Callable[..., Ended], export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (output, statement_pages):
        monkeypatch.setattr(module, "visible", str)
    for words in (["ledger", "show"], ["statement"], ["ledger", "import"]):
        with pytest.raises(AssertionError):
            lrdp(*words, export)


def test_only_one_place_prints() -> None:
    """The linter keeps ``print`` out of the others; this keeps out the ways around it."""
    folder = Path(output.__file__).parent
    others = {*folder.glob("*.py"), folder.parent / "cli.py"} - {folder / "output.py"}
    assert len(others) > 5
    for path in others:
        code = path.read_text(encoding="utf-8")
        assert not any(way in code for way in ("typer.echo", "Console(", "sys.stdout.write", " print(")), path
