"""`lrdp experiments`: what can be said before anything is run."""

import pytest

from lrdp.commands import experiments
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
