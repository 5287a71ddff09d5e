"""``lrdp run``: what it prints is what the ledgers and the receipts say."""

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import demonstration as shown_by
from demonstration import demonstration
from lrdp.cli import main
from lrdp.commands import run
from lrdp.commands.streams import streams
from lrdp.errors import LedgerUnwritable
from lrdp.ledger import verify_export
from lrdp.ledger.charges import State

pytest.importorskip("flwr")

LOCAL_STEPS = 2
FRUGAL, KILLED = "hospital-f", "hospital-c"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demonstration") / "new"
    return demonstration(f"--engine in-process --rounds 4 --local-steps {LOCAL_STEPS}", folder)


@pytest.fixture
def lrdp(monkeypatch, capsys):
    def typed(line):
        monkeypatch.setattr("sys.argv", ["lrdp", *shlex.split(line)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return typed


def test_every_figure_is_that_of_a_ledger_and_of_the_accountant(shown):
    shown_by.check_shape(shown)
    shown_by.check_spending(shown, LOCAL_STEPS)


def test_an_auditor_finds_every_verified_round_in_the_receipts(shown):
    shown_by.check_receipts(shown)


def test_an_altered_sum_is_refused_by_all_and_the_repetition_costs_nothing(shown):
    shown_by.check_caught(shown)


def test_a_client_whose_budget_is_spent_refuses_and_spends_nothing_more(shown):
    shown_by.check_exhausted(shown, FRUGAL, charges=2)


def test_a_client_killed_in_training_keeps_its_charge_and_comes_back(shown):
    places = [place for place, attempt in enumerate(shown.attempts) if KILLED in attempt["killed"]]
    assert len(places) == 1
    assert any(KILLED in attempt["participants"] for attempt in shown.attempts[places[0] + 1 :])
    states = list(shown.books(KILLED).charges.states.values())
    assert states.count(State.RESERVED) == shown.client(KILLED)["lost"] == 1
    assert states.count(State.SENT) == shown.client(KILLED)["rounds"] == len(states) - 1
    assert all(client["lost"] == 0 for client in shown.summary["clients"] if client["client"] != KILLED)


def test_every_client_has_a_policy_and_a_budget_of_its_own(shown):
    noises = {
        client["client"]: shown.consortium.client(client["client"]).policy().mechanism.costliest.noise_multiplier
        for client in shown.summary["clients"]
    }
    assert len({client["budget"] for client in shown.summary["clients"]}) >= 4
    assert len(set(noises.values())) >= 4


def test_the_table_shows_the_figures_and_its_commands_work_when_pasted(shown, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["-c"])
    monkeypatch.setattr("shutil.which", lambda _name: None)
    run._print_summary(shown.summary)
    out = capsys.readouterr().out
    assert f"{shown.summary['rounds_verified']} rounds verified of {shown.summary['rounds_run']} run" in out
    commands = [line.strip() for line in out.splitlines() if line.startswith("  ")]
    assert len(commands) == 3
    for command in commands:
        ended = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr


def test_a_terminal_of_ascii_shows_the_same_rounds_and_the_same_table(shown, monkeypatch):
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True) for _ in range(2))
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    with streams():
        with run._on_screen(len(shown.attempts), run.Venue.IN_PROCESS) as show:
            for attempt in shown.attempts:
                show(attempt)
        run._print_summary(shown.summary)
    table, rounds = (stream.buffer.getvalue().decode("ascii") for stream in (out, err))
    assert len(rounds.splitlines()) == len(shown.attempts)
    assert all("epsilon" in line for line in rounds.splitlines())
    assert "epsilon" in table


@pytest.mark.parametrize("page", ["examples/README.md", "apps/digits/README.md"])
def test_the_pages_of_the_examples_look_at_a_consortium_with_lines_that_work(shown, page):
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    lines = re.findall(r"^(?:lrdp|PIN=).*LRDP_CONSORTIUM.*$", text, re.MULTILINE)
    assert len(lines) == 3
    pasted = "\n".join(["set -euo pipefail", 'lrdp() { python -m lrdp "$@"; }', *lines]).replace("hospital-0", KILLED)
    settings = {**os.environ, "LRDP_CONSORTIUM": shown.summary["folder"]}
    settings["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{settings['PATH']}"
    ended = subprocess.run(["bash", "-c", pasted], env=settings, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^verified +True$", ended.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--clients 2", "clients must lie between 3 and 26, got 2"),
        ("--clients 27", "clients must lie between 3 and 26, got 27"),
        ("--rounds 0", "rounds must be at least 1"),
        ("--local-steps 0", "local_steps must be at least 1"),
        ("--epsilon 0", "epsilon must be"),
        ("--epsilon nan", "epsilon must be"),
        ("--epsilon inf", "epsilon must be"),
        ("--engine steam", "steam"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_sentence(lrdp, tmp_path, options, reason):
    code, out, err = lrdp(f"run {options} --folder {tmp_path}/new")
    assert (code, out) == (2, "")
    assert reason in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_a_folder_that_exists_is_never_written_to(lrdp, tmp_path):
    code, out, err = lrdp(f"run --folder {tmp_path}")
    assert (code, out) == (2, "")
    assert "never overwritten" in err
    assert list(tmp_path.iterdir()) == []


def test_without_the_extras_it_says_what_to_install(lrdp, monkeypatch):
    monkeypatch.setattr(run, "find_spec", lambda name: None if name == "ray" else object())
    assert lrdp("run") == (
        2,
        "",
        "Error: ray missing: nothing was run; install what it needs with pip install 'lrdp[flower,experiments]'.\n",
    )


def test_the_command_is_there_without_anything_heavy():
    check = "import sys, lrdp.commands.run; print([name for name in ('torch', 'flwr', 'ray') if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_an_interrupt_says_where_the_books_are(lrdp, monkeypatch, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lrdp.experiments.demo.run", interrupted)
    code, out, err = lrdp(f"run --engine in-process --folder {tmp_path / 'new'}")
    assert (code, out) == (130, "")
    assert f"are in {tmp_path / 'new'}: what was charged stays charged.\nStopped.\n" in err


def test_a_ray_that_does_not_start_ends_in_a_sentence_and_nothing_is_charged(lrdp, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", "/proc/nowhere")
    code, out, err = lrdp(f"run --clients 3 --rounds 1 --local-steps 1 --folder {tmp_path / 'new'}")
    assert (code, out) == (2, "")
    (sentence,) = err.splitlines()
    assert "No such file or directory: '/proc/nowhere'" in sentence
    assert "--engine in-process" in sentence
    for ledger in (tmp_path / "new").rglob("ledger.db"):
        assert verify_export(ledger).books.charges.states == {}


def test_a_refusal_of_our_own_keeps_its_exit_code_inside_a_simulation(lrdp, monkeypatch, tmp_path):
    def refused(*_):
        try:
            raise LedgerUnwritable("the disk is full.")
        except LedgerUnwritable as problem:
            raise RuntimeError("An error was encountered.") from problem

    monkeypatch.setattr("lrdp.experiments.demo.run", refused)
    assert lrdp(f"run --engine in-process --folder {tmp_path / 'new'}") == (6, "", "Error: the disk is full.\n")
