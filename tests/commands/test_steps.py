"""A mechanism is a file and a line: a made-up one is offered wherever the others are, without a word said elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lrdp.commands.steps import step_of
from lrdp.errors import InvalidInput

# The file: every record is in a step if all of its coins show heads. The line: the last one of this text.
MADE_UP = """
from dataclasses import dataclass
from typing import ClassVar

from lrdp.accounting import MECHANISMS, SizedGaussian
from lrdp.accounting.mechanisms import Bound, Side
from lrdp.accounting.pairs import GaussianMixturePair


@dataclass(frozen=True, kw_only=True)
class CoinTosses(SizedGaussian):
    name: ClassVar[str] = "coin-tosses"
    about: ClassVar[str] = "Every record tosses its coins."
    numbers: ClassVar[dict] = {**SizedGaussian.numbers, "coins": int}
    bounds: ClassVar[dict] = {
        "noise_multiplier": Bound("min_noise_multiplier", Side.ABOVE),
        "coins": Bound("least_coins", Side.ABOVE, "Fewer coins show heads more often."),
        "dataset_size": Bound("max_dataset_size", Side.SAME),
    }
    coins: int

    rows = property(lambda self: self.normaliser)
    normaliser = property(lambda self: max(1, self.dataset_size >> self.coins))
    scope = property(lambda self: "lucky data sets")

    @classmethod
    def batch_sizes(cls, sizes):
        return range(1, sizes.dataset_size) if sizes.rows is None else range(sizes.rows, sizes.rows + 1)

    @classmethod
    def drawing(cls, batch_size, sizes):
        coins = (sizes.dataset_size // batch_size).bit_length()
        return cls(dataset_size=sizes.dataset_size, coins=coins, noise_multiplier=1.0)

    def dominating_pair(self, adjacency):
        return GaussianMixturePair(weights=(0.5**self.coins,), deviation=self.noise_multiplier)


MECHANISMS[CoinTosses.name] = CoinTosses
"""
COMMANDS = """
import sys

from lrdp.cli import main

folder = sys.argv[1]
for line in (
    "epsilon --mechanism coin-tosses -n 1000 --coins 5 --noise-multiplier 3 --steps 40 --delta 1e-5 --json",
    "epsilon --mechanism poisson -n 1024 -b 32 --noise-multiplier 3 --steps 40 --delta 1e-5 --json",
    "calibrate --mechanism coin-tosses -n 1000 --coins 5 --epsilon 2 --steps 40 --delta 1e-5 --json",
    "plan -n 1000 -b 31 --rounds 4 --local-steps 10 --epsilon 2 --delta 1e-5 --json --plot " + folder + "/plan.svg",
    "plan -n 1000 --passes 2 --rows 31 --least-steps 20 --epsilon 2 --delta 1e-5 --json",
    "init --folder " + folder + " --mechanism coin-tosses -n 1000 -b 31 --rounds 4 --local-steps 10 --json",
):
    sys.argv = ["lrdp", *line.split()]
    try:
        main()
    except SystemExit as stopped:
        if stopped.code:
            raise
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, object]], Path]:
    """What the commands say in a process in which there is one mechanism more."""
    folder = tmp_path_factory.mktemp("made-up")
    script = folder / "made_up.py"
    script.write_text(MADE_UP + COMMANDS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], folder


def test_its_cost_and_its_least_noise_can_be_asked_for_by_its_own_numbers(
    answers: tuple[list[dict[str, object]], Path],
) -> None:
    cost, same_law, calibrated = answers[0][:3]
    assert (cost["mechanism"], cost["coins"], cost["accountant"]) == ("coin-tosses", 5, "rdp")
    assert cost["epsilon"] == same_law["epsilon"], "32 of 1,024 are as likely as five heads"
    assert float(str(calibrated["epsilon"])) <= 2.0


def test_a_plan_compares_it_and_draws_it(answers: tuple[list[dict[str, object]], Path]) -> None:
    plan = answers[0][3]
    options = plan["options"]
    assert isinstance(options, list)
    kinds = {(option["mechanism"], option["accountant"], option["adjacency"]) for option in options}
    assert {("coin-tosses", "rdp", "add-remove"), ("coin-tosses", "pld", "add-remove")} <= kinds
    assert "coin-tosses" in (answers[1] / "plan.svg").read_text(encoding="utf-8")


def test_a_search_by_passes_tries_it(answers: tuple[list[dict[str, object]], Path]) -> None:
    searched = answers[0][4]["searched"]
    assert isinstance(searched, list)
    assert "coin-tosses" in {candidate["mechanism"] for candidate in searched}


def test_a_policy_states_it_in_its_own_words_and_its_budget_is_opened(
    answers: tuple[list[dict[str, object]], Path],
) -> None:
    assert answers[0][5]["rounds"] == 4
    lines = (answers[1] / "policy.toml").read_text(encoding="utf-8").splitlines()
    place = lines.index('sampling = "coin-tosses"')
    assert lines[place - 1 : place + 4] == [
        "# Every record tosses its coins.",
        'sampling = "coin-tosses"',
        "# Fewer coins show heads more often.",
        "least_coins = 6",
        "max_dataset_size = 1000",
    ]


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [
        ("full-batch", {"noise_multiplier": 1.0, "dataset_size": None}, "--dataset-size is required with"),
        ("gaussian", {"noise_multiplier": 1.0, "dataset_size": 9}, "--dataset-size=9 is only for"),
        ("fixed-size", {"noise_multiplier": 1.0, "dataset_size": 9, "batch_size": 9}, "batch_size must be below"),
    ],
)
def test_a_number_too_few_or_too_many_is_refused_by_its_option(
    name: str, numbers: dict[str, float | None], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        step_of(name, numbers)
