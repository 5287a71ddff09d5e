"""`lrdp experiments`: what can be said before anything is run."""

import io
from types import SimpleNamespace

import pytest

from lrdp.commands import experiments
from lrdp.commands.streams import streams
from lrdp.errors import InvalidInput


def test_changes_are_lines_of_toml_laid_over_one_another() -> None:
    given = ["epsilons=[2, 8]", "tasks.mnist.rounds=5", "tasks.mnist.batch=7", "tasks.mnist.rounds=6"]
    assert experiments.read_changes(given) == {"epsilons": [2, 8], "tasks": {"mnist": {"rounds": 6, "batch": 7}}}
    assert experiments.read_changes(None) == {}


@pytest.mark.parametrize("line", ["rounds", "=5", "rounds=five", "a=1\x00"])
def test_a_change_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput, match="--set"):
        experiments.read_changes([line])


def test_without_the_extras_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "find_spec", lambda name: None if name in ("flwr", "opacus") else object())
    with pytest.raises(InvalidInput, match=r"flwr, opacus missing: nothing was run; .*lrdp\[flower,experiments\]"):
        experiments.conduct("noise", {}, {})


def test_a_terminal_of_ascii_is_told_which_cells_were_run(monkeypatch: pytest.MonkeyPatch) -> None:
    err = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr("sys.stderr", err)
    with streams(), experiments._bar() as observe:
        observe.stage(3, 1)
        observe.done(SimpleNamespace(label="mnist · ε = 2 · σ ≥ 1"), 0.25)  # type: ignore[arg-type]
    kept, done = err.buffer.getvalue().decode("ascii").splitlines()
    assert kept == "Stage 1: 1 of 3 cells were run before and are kept."
    assert "epsilon = 2" in done
