"""``lrdp plan``, as a user types it: at equal rows, and by passes with batches larger than memory holds."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lrdp.cli import app, main
from lrdp.ledger import read_policy

from .clients import Client, folder

BY_PASSES = "plan -n 900 --passes 3 --rows 16 --least-steps 12 --epsilon 3 --delta 1e-4"


@pytest.fixture
def lrdp(monkeypatch, capsys):
    """Run one command line; return its exit code, stdout and stderr."""

    def run(line):
        monkeypatch.setattr("sys.argv", ["lrdp", *shlex.split(line)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return run


def record(answer):
    code, out, err = answer
    assert code == 0, err
    return json.loads(out)


class TestAtEqualRows:
    LINE = "plan -n 2000 -b 40 --rounds 6 --local-steps 5 --epsilon 3 --delta 1e-4"

    def test_it_compares_all_and_recommends_one_with_the_reason(self, lrdp, tmp_path):
        plot = tmp_path / "deep" / "plan.svg"
        plan = record(lrdp(f"{self.LINE} --plot {plot} --json"))
        kinds = {(row["mechanism"], row["accountant"], row["adjacency"]) for row in plan["options"]}
        assert {
            ("fixed-size", "rdp", "add-remove"),
            ("fixed-size", "taylor", "add-remove"),
            ("fixed-size", "pld", "replace-one"),
            ("fixed-size-with-replacement", "pld", "add-remove"),
            ("truncated-poisson", "pld", "add-remove"),
            ("poisson", "rdp", "add-remove"),
        } <= kinds
        for row in plan["options"]:
            assert row["epsilon"] <= 3.0
            assert row["rounds_affordable"] >= 6
            assert 0 < row["epsilon_of_one_round"] <= row["epsilon"]
        constant = [r for r in plan["options"] if r["rows_in_memory"] is not None and r["adjacency"] == "add-remove"]
        assert plan["recommended"] == min(constant, key=lambda row: row["noise_on_mean"])
        assert plan["recommended"]["mechanism"] in plan["reason"]
        assert "<svg" in plot.read_text(encoding="utf-8")

    def test_people_get_a_table(self, lrdp):
        code, out, _ = lrdp(self.LINE)
        assert code == 0
        assert "truncated-poisson" in out
        assert "Recommended:" in out

    def test_a_picture_in_an_unknown_format_is_refused(self, lrdp, tmp_path):
        code, _, err = lrdp(f"{self.LINE} --plot {tmp_path / 'plan.xyz'}")
        assert code == 2
        assert "plan.xyz" in err

    @pytest.mark.parametrize("change", ["-b 2000", "--rounds 0", "--local-steps 0", "--epsilon nan", "--delta 1"])
    def test_bad_input_is_refused_before_any_work(self, lrdp, change):
        code, out, err = lrdp(f"{self.LINE} {change}")
        assert (code, out) == (2, "")
        assert len(err.strip().splitlines()) == 1


class TestByPasses:
    def test_it_recommends_the_least_noise_and_says_what_it_is_measured_by(self, lrdp, tmp_path):
        plot = tmp_path / "plan.svg"
        plan = record(lrdp(f"{BY_PASSES} --plot {plot} --json"))
        best = plan["recommended"]
        assert best in plan["finalists"]
        assert best["noise_over_training"] <= 1.01 * min(each["noise_over_training"] for each in plan["finalists"])
        assert (best["mechanism"], best["accountant"], best["batch_size"]) == ("truncated-poisson", "pld", 225)
        assert best["steps"] == best["rounds"] * best["local_steps"] >= plan["least_steps"] == 12
        assert best["rows_computed"] == best["rows_per_step"] * best["steps"]
        for each in (*plan["searched"], *plan["finalists"], *plan["measured_by"]):
            assert each["epsilon"] <= 3.0
            assert each["steps"] * each["batch_size"] <= 3 * 900
        assert {each["mechanism"] for each in plan["searched"]} == {"fixed-size", "truncated-poisson", "full-batch"}
        assert [each["mechanism"] for each in plan["measured_by"]] == ["fixed-size", "poisson", "truncated-poisson"]
        assert "<svg" in plot.read_text(encoding="utf-8")

    def test_people_get_a_table_the_reason_and_what_to_start_from(self, lrdp):
        code, out, _ = lrdp(BY_PASSES)
        assert code == 0
        assert "│ recommended │ truncated-poisson │ pld" in out
        assert "Recommended: truncated-poisson / pld, batches of 225 in 12 rounds of 1 steps" in out
        assert "Start from:\n  learning rate, ten classes or more " in out

    def test_starting_values_come_with_their_rule_and_their_source(self, lrdp):
        plan = record(lrdp(f"{BY_PASSES} --json"))
        values = {each["name"]: each for each in plan["starting_values"]}
        rates = [values.pop(f"learning rate, {classes}") for classes in ("two classes", "ten classes or more")]
        assert set(values) == {"clip norm", "local steps", "normaliser"}
        best = plan["recommended"]
        noise = best["noise_multiplier"] / best["batch_size"] * (best["steps"] / 10) ** 0.5
        assert [noise * rate["value"] for rate in rates] == pytest.approx([0.23, 0.94], rel=0.05)
        assert all(rate["low"] < rate["value"] < rate["high"] and rate["rule"] and rate["source"] for rate in rates)
        assert values["normaliser"]["value"] == best["batch_size"]
        assert all(each["rule"] and each["source"] for each in values.values())

    def test_local_steps_are_those_that_were_asked_for(self, lrdp):
        best = record(lrdp(f"{BY_PASSES} --local-steps 4 --json"))["recommended"]
        assert (best["local_steps"], best["rounds"]) == (4, 3)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ("--passes 0", "passes must"),
            ("--passes nan", "passes must"),
            ("--rows 0", "rows must be at least 1"),
            ("--least-steps 0", "least_steps must be at least 1"),
            ("--local-steps 0", "local_steps must be at least 1"),
            ("-b 32", "-b=32 only has a meaning without --passes"),
            ("--rounds 3", "--rounds=3 only has a meaning without --passes"),
            ("--epsilon nan", "epsilon must"),
            ("--plot nowhere.xyz", "must end in one of"),
        ],
    )
    def test_bad_input_is_refused_before_any_work(self, lrdp, change, words):
        code, out, err = lrdp(f"{BY_PASSES} {change}")
        assert (code, out) == (2, "")
        assert words in err
        assert len(err.strip().splitlines()) == 1

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("plan -n 900 --epsilon 3 --delta 1e-4", "-b is missing: give --passes, or"),
            ("plan -n 900 -b 9 --epsilon 3 --delta 1e-4", "--rounds is missing"),
            ("plan -n 900 -b 9 --rounds 2 --epsilon 3 --delta 1e-4", "--local-steps is missing"),
            ("plan -n 900 --rows 9 --epsilon 3 --delta 1e-4", "--rows=9 only has a meaning with --passes"),
        ],
    )
    def test_half_a_question_is_answered_with_what_is_missing(self, lrdp, line, words):
        code, out, err = lrdp(line)
        assert (code, out) == (2, "")
        assert words in err


@pytest.mark.parametrize(("passes", "kind"), [("3", "truncated-poisson"), ("14", "full-batch")])
def test_what_is_recommended_becomes_a_policy_with_its_rows_and_a_budget_that_lasts(
    tmp_path: Path, passes: str, kind: str
) -> None:
    client = Client(tmp_path)
    sizes = (
        "-n",
        "900",
        "--passes",
        passes,
        "--rows",
        "16",
        "--least-steps",
        "12",
        "--epsilon",
        "3",
        "--delta",
        "1e-4",
    )
    planned: dict[str, Any] = client.json("plan", *sizes, "--write", str(client.home.policy), "--client", "hospital-a")
    best, policy = planned["recommended"], read_policy(client.home.policy)
    step = policy.mechanism.costliest
    assert (step.name, step.noise_multiplier, step.rows) == (kind, best["noise_multiplier"], best["rows_per_step"])
    assert policy.micro_batch == 16
    assert policy.mechanism.max_steps_per_round == best["local_steps"]
    assert planned["rounds_promised"] == best["rounds"]
    assert client.json("init", *folder(client))["rounds"] == best["rounds"]


def test_the_help_names_both_ways() -> None:
    out = CliRunner().invoke(app, ["plan", "--help"]).stdout
    assert all(option in out for option in ("--passes", "--rows", "--least-steps", "--batch-size", "--rounds"))
