"""The commands, as a user types them: what is on stdout, what is on stderr, and the exit code."""

import json
import re
import shlex

import pytest

from lrdp.cli import main

CLIENT = "--dataset-size 5000 --batch-size 128 --steps 10000 --delta 1e-5"


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


def test_epsilon_prints_one_object_with_the_promised_keys(lrdp):
    answer = record(lrdp(f"epsilon {CLIENT} --noise-multiplier 4.427 --json"))
    assert {"epsilon", "delta", "order", "mechanism", "adjacency", "accountant"} <= answer.keys()
    assert answer["epsilon"] == pytest.approx(6.0, rel=5e-3)
    assert (answer["mechanism"], answer["adjacency"], answer["accountant"]) == ("fixed-size", "add-remove", "rdp")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--noise-multiplier 10.340 --accountant pld", 2.0),
        ("--noise-multiplier 11.342 --accountant taylor --taylor-order 3", 2.0),
        ("--noise-multiplier 11.002 --accountant pld --adjacency replace-one", 2.0),
        ("--noise-multiplier 5.566 --mechanism poisson", 2.0),
        ("--noise-multiplier 6 --mechanism fixed-size-with-replacement", 3.80),
        ("--noise-multiplier 3.69 --mechanism truncated-poisson --cap 170 --accountant pld", 2.96),
    ],
)
def test_every_mechanism_and_accountant_can_be_asked_for(lrdp, options, expected):
    answer = record(lrdp(f"epsilon {CLIENT} {options} --json"))
    assert answer["epsilon"] == pytest.approx(expected, rel=1e-2)
    assert (answer["order"] is None) == (answer["accountant"] == "pld")


def test_without_an_accountant_the_best_one_that_has_a_bound_is_taken(lrdp):
    assert record(lrdp(f"epsilon {CLIENT} --noise-multiplier 6 --json"))["accountant"] == "rdp"
    replaced = f"epsilon {CLIENT} --noise-multiplier 6 --mechanism fixed-size-with-replacement --json"
    assert record(lrdp(replaced))["accountant"] == "pld"


def test_epsilon_answers_for_several_rows_of_one_person(lrdp):
    line = f"epsilon {CLIENT} --noise-multiplier 6 --group-size 3"
    answer = record(lrdp(f"{line} --json"))
    assert answer["epsilon"] == pytest.approx(14.199, abs=1e-3)
    assert answer["guess_rate"] == pytest.approx(0.905, abs=1e-3)
    code, out, err = lrdp(f"{line} --accountant rdp")
    assert (code, out) == (2, "")
    assert "--group-size=3" in err


def test_epsilon_gives_what_any_attack_can_tell_and_draws_it(lrdp, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    answer = record(lrdp(f"epsilon {CLIENT} --noise-multiplier 6 --plot {picture} --json"))
    assert answer["guess_rate"] == pytest.approx(0.6693, abs=1e-4)
    assert answer["advantage"] == pytest.approx(2 * answer["guess_rate"] - 1, abs=1e-9)
    assert answer["true_positives_at_0.01"] == pytest.approx(0.0739, abs=1e-4)
    false, true = zip(*answer["trade_off"], strict=True)
    assert list(false) == sorted(false)
    assert list(true) == sorted(true)
    assert (false[-1], true[-1]) == (1.0, 1.0)
    assert all(above >= below for below, above in answer["trade_off"])
    assert b"<svg" in picture.read_bytes()
    code, out, err = lrdp(f"epsilon {CLIENT} --noise-multiplier 6 --plot {tmp_path / 'curve.doc'}")
    assert (code, out) == (2, "")
    assert "must end in one of" in err


@pytest.mark.parametrize("accountant", ["rdp", "taylor", "pld"])
def test_calibrate_keeps_the_target_and_epsilon_confirms_it(lrdp, accountant):
    found = record(lrdp(f"calibrate {CLIENT} --epsilon 8 --accountant {accountant} --json"))
    assert found["epsilon"] <= 8.0
    again = record(
        lrdp(f"epsilon {CLIENT} --noise-multiplier {found['noise_multiplier']!r} --accountant {accountant} --json")
    )
    assert again["epsilon"] == found["epsilon"]


def test_people_get_words_instead_of_json(lrdp):
    code, out, _ = lrdp(f"epsilon {CLIENT} --noise-multiplier 4.427")
    assert code == 0
    assert re.search(r"^epsilon +5\.99\d", out, re.MULTILINE)


GOOD = {"dataset-size": "5000", "batch-size": "128", "noise-multiplier": "2", "steps": "10", "delta": "1e-5"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise-multiplier": "nan"}, "noise_multiplier must be above 0 and finite, got nan"),
        ({"noise-multiplier": "inf"}, "got inf"),
        ({"noise-multiplier": "0"}, "got 0.0"),
        ({"noise-multiplier": "-1"}, "got -1.0"),
        ({"batch-size": "5000"}, "batch_size must be below dataset_size=5000, got 5000"),
        ({"batch-size": "0"}, "batch_size must be at least 1, got 0"),
        ({"dataset-size": "-7"}, "dataset_size must be at least 2, got -7"),
        ({"delta": "0"}, "delta must lie strictly between 0 and 1, got 0"),
        ({"delta": "1"}, "delta must lie strictly between 0 and 1, got 1"),
        ({"delta": "nan"}, "delta must lie strictly between 0 and 1, got nan"),
        ({"delta": "5"}, "got 5"),
        ({"steps": "0"}, "steps must be at least 1, got 0"),
        ({"steps": "-3"}, "steps must be at least 1, got -3"),
        ({"mechanism": "poisson", "adjacency": "replace-one"}, "not supported under replace-one"),
        (
            {"mechanism": "truncated-poisson", "cap": "200", "adjacency": "replace-one"},
            "not supported under replace-one",
        ),
        ({"adjacency": "replace-one", "accountant": "taylor"}, "covers add-remove only"),
        ({"mechanism": "fixed-size-with-replacement", "accountant": "rdp"}, "use the pld accountant"),
        ({"mechanism": "truncated-poisson"}, "--cap is required"),
        ({"mechanism": "truncated-poisson", "cap": "100"}, "cap must be at least the expected batch_size=128, got 100"),
        ({"cap": "100"}, "--cap=100 is only for"),
        ({"accountant": "taylor", "taylor-order": "2"}, "taylor order must be at least 3, got 2"),
        ({"taylor-order": "4"}, "--taylor-order=4 is only for"),
        ({"delta": "1e-300", "accountant": "pld"}, "use the rdp accountant or a larger delta"),
        ({"mechanism": "shuffled"}, "shuffled"),
        ({"steps": "ten"}, "'ten' is not a valid"),
    ],
)
def test_bad_input_ends_in_one_sentence_and_exit_code_2(lrdp, changes, words):
    line = " ".join(f"--{name} {value}" for name, value in (GOOD | changes).items())
    code, out, err = lrdp(f"epsilon {line} --json")
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("epsilon", ["nan", "0", "-2", "inf"])
def test_calibrate_refuses_a_budget_that_is_none(lrdp, epsilon):
    code, out, err = lrdp(f"calibrate {CLIENT} --epsilon {epsilon}")
    assert (code, out) == (2, "")
    assert "epsilon must be above 0 and finite" in err


def test_calibrate_says_when_no_noise_is_enough(lrdp):
    line = "calibrate --dataset-size 100 --batch-size 99 --steps 1000000000 --delta 1e-9 --epsilon 1e-4"
    code, out, err = lrdp(line)
    assert (code, out) == (2, "")
    assert "take fewer steps" in err


def test_a_missing_option_is_named(lrdp):
    code, out, err = lrdp("epsilon --dataset-size 5000")
    assert (code, out) == (2, "")
    assert "--noise-multiplier" in err


def test_a_missing_number_is_named_with_the_mechanism_that_has_it(lrdp):
    code, out, err = lrdp("epsilon --dataset-size 5000 --noise-multiplier 2 --steps 10 --delta 1e-5")
    assert (code, out) == (2, "")
    assert "--batch-size is required with --mechanism fixed-size" in err
    assert (
        "--batch-size=3 is only for --mechanism fixed-size and"
        in lrdp("epsilon -n 5000 -b 3 --noise-multiplier 2 --steps 10 --delta 1e-5 --mechanism full-batch")[2]
    )


def test_the_edge_of_the_orders_is_said_on_stderr_only(lrdp):
    code, out, err = lrdp(
        "epsilon --dataset-size 1000000 --batch-size 1 --noise-multiplier 50 --steps 1 --delta 1e-5 --json"
    )
    assert code == 0
    assert json.loads(out)["order"] == 1024
    assert "edge" in err


def test_help_and_version_work_without_a_command(lrdp):
    code, out, _ = lrdp("--help")
    assert code == 0
    assert all(command in out for command in ("epsilon", "calibrate", "plan"))
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", lrdp("--version")[1])
