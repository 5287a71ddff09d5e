"""An average of verified models is what anybody can make again from them, to the bit, and nothing else."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from federation.worlds import World, world
from lrdp.cli import app
from lrdp.errors import InvalidInput, LrdpError, NotVerified
from lrdp.federation import Averaging
from lrdp.federation.wire.model_averages import AveragedModel, averaged, read_kept
from lrdp.federation.wire.model_files import KeptModel, read_model, write_model
from lrdp.integrity import MODEL, model_hash

DECAY = 0.6


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = world(tmp_path_factory.mktemp("averages"), 3)
    made.run(4, average=Averaging(rounds=3, decay=DECAY))
    return made


def models(place: World) -> list[Path]:
    return sorted(place.consortium.server_folder.glob("model-*.safetensors"))


def average(place: World) -> Path:
    (path,) = place.consortium.server_folder.glob("average-*.safetensors")
    return path


def called(*words: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["model", *map(str, words), "--json"], catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return dict(json.loads(done.stdout))


def pin(place: World) -> str:
    return place.consortium.registry().digest.hex()


def test_a_server_keeps_the_average_of_the_last_models_and_what_it_is_made_of(place: World) -> None:
    assert [read_model(path).round for path in models(place)] == [2, 3, 4]
    shown = called("show", average(place))
    assert (shown["average_of_rounds"], shown["decay"]) == ([2, 3, 4], DECAY)


def test_a_run_returns_it_beside_the_last_model_where_it_was_asked_for(tmp_path: Path) -> None:
    asked, other = world(tmp_path / "asked", 3), world(tmp_path / "other", 3)
    result = asked.run(2, average=Averaging(rounds=9))
    assert result.average is not None
    np.testing.assert_array_equal(result.average["weight"].numpy(), load_file(average(asked))["weight"])
    assert not np.array_equal(result.average["weight"].numpy(), result.arrays["weight"].numpy())
    assert other.run(2).average is None
    assert [read_model(path).round for path in models(other)] == [2]
    assert not list(other.consortium.server_folder.glob("average-*"))


def test_it_is_the_weighted_mean_that_exact_numbers_give(place: World) -> None:
    vectors = [read_model(path).vector for path in models(place)]
    weights = [Fraction(DECAY) ** age for age in (2, 1, 0)]
    exact = [
        sum(weight * Fraction(float(value)) for weight, value in zip(weights, values, strict=True)) / sum(weights)
        for values in zip(*vectors, strict=True)
    ]
    assert read_kept(average(place)).vector.tolist() == np.array([float(value) for value in exact], MODEL).tolist()


def test_an_auditor_proves_every_model_in_it_and_makes_it_again(place: World, tmp_path: Path) -> None:
    found = called("verify", average(place), "--pin", pin(place))
    assert found["verified"] is True
    assert found["participants"] == place.names
    moved = tmp_path / "mine.safetensors"
    moved.write_bytes(average(place).read_bytes())
    assert called("verify", moved, "--pin", pin(place), "--receipts", place.consortium.server_folder)["verified"]
    receipts = next(place.consortium.server_folder.glob("receipts-*.txt"))
    with pytest.raises(NotVerified, match="cannot be made again"):
        called("verify", moved, "--pin", pin(place), "--receipts", receipts, "--models", tmp_path)


def test_anybody_averages_kept_models_and_gets_the_servers_own(place: World, tmp_path: Path) -> None:
    out = tmp_path / "own.safetensors"
    made = called("average", out, *models(place), "--decay", DECAY)
    assert made["model"] == called("show", average(place))["model"]
    assert called("verify", out, "--pin", pin(place), "--receipts", place.consortium.server_folder)["verified"]
    plain = called("average", tmp_path / "plain.safetensors", *models(place))
    assert plain["model"] != made["model"]
    called("export", tmp_path / "own.pt", "--model", out)
    assert called("verify", tmp_path / "own.pt", "--pin", pin(place), "--receipts", place.consortium.server_folder)[
        "verified"
    ]
    called("export", tmp_path / "copy.safetensors", "--model", out)
    assert called("show", tmp_path / "copy.safetensors") == called("show", out)


def forged(place: World, path: Path, **changes: str) -> Path:
    """The server's average with other words, or with other parameters under the right hash for them."""
    kept = read_kept(average(place))
    assert isinstance(kept, AveragedModel)
    write_model(path, kept)
    about = {
        "session": kept.session,
        "nonce": (kept.nonce or b"").hex(),
        "layout": kept.layout.described.hex(),
        "decay": repr(kept.decay),
        "places": " ".join(":".join(map(str, each)) for each in kept.places),
        "model": kept.digest,
    }
    arrays = kept.layout.arrays(kept.vector)
    if "shift" in changes:
        arrays = kept.layout.arrays(kept.vector + np.float32(changes.pop("shift")))
        changes["model"] = model_hash(kept.layout.flat(arrays)).hex()
    save_file(arrays, path, about | changes)
    return path


FORGED: dict[str, tuple[dict[str, str], str]] = {
    "other parameters": ({"shift": "1e-3"}, "not the average that it says"),
    "another rule": ({"decay": "0.61"}, "not the average that it says"),
    "a model that nobody verified": ({"places": f"2:{'ab' * 32}:{'cd' * 32}"}, "no receipt in"),
    "parameters changed under the old hash": ({"model": "ef" * 32}, "damaged or was changed"),
    "no rule": ({"decay": "nan"}, "does not say of which models"),
    "a rule that is no number": ({"decay": "much"}, "does not say of which models"),
    "no models": ({"places": ""}, "does not say of which models"),
    "words for models": ({"places": "2:ab:cd"}, "does not say of which models"),
}


@pytest.mark.parametrize("case", FORGED)
def test_what_is_not_the_average_it_says_is_refused(place: World, tmp_path: Path, case: str) -> None:
    changes, sentence = FORGED[case]
    path = forged(place, tmp_path / "forged.safetensors", **changes)
    with pytest.raises(LrdpError, match=sentence) as refused:
        called("verify", path, "--pin", pin(place), "--receipts", place.consortium.server_folder)
    assert "\n" not in str(refused.value)
    control = forged(place, tmp_path / "control.safetensors")
    assert called("verify", control, "--pin", pin(place), "--receipts", place.consortium.server_folder)["verified"]


def test_a_subset_of_the_models_under_the_same_words_is_refused(place: World, tmp_path: Path) -> None:
    """The right places of verified models, and the average of only two of them."""
    two = averaged(Averaging(rounds=2, decay=DECAY), [read_model(path) for path in models(place)])
    whole = read_kept(average(place))
    path = tmp_path / "lie.safetensors"
    lie = AveragedModel(
        session=two.session,
        nonce=two.nonce,
        decay=DECAY,
        places=whole.places,
        digest=two.digest,
        layout=two.layout,
        vector=two.vector,
    )
    write_model(path, lie)
    with pytest.raises(NotVerified, match="not the average that it says"):
        called("verify", path, "--pin", pin(place), "--receipts", place.consortium.server_folder)


def of_round(kept: KeptModel, number: int, session: str = "") -> KeptModel:
    return KeptModel(
        session=session or kept.session,
        nonce=kept.nonce,
        round=number,
        tip=kept.tip,
        digest=kept.digest,
        layout=kept.layout,
        vector=kept.vector,
    )


@pytest.mark.parametrize(
    ("rounds", "sessions", "sentence"),
    [
        ((3, 2), ("", ""), "order of their rounds"),
        ((2, 2), ("", ""), "each once"),
        ((0, 1), ("", ""), "from round 1 on"),
        ((1, 2), ("", "ab" * 32), "more than one session"),
        ((), (), "no model to average"),
    ],
)
def test_only_models_of_one_history_in_its_order_are_averaged(place, rounds, sessions, sentence):
    kept = read_model(models(place)[0])
    given = [of_round(kept, number, session) for number, session in zip(rounds, sessions, strict=True)]
    with pytest.raises(InvalidInput, match=sentence):
        averaged(Averaging(rounds=5), given)


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"rounds": 10_001}, {"rounds": 2, "decay": 0.0}, {"rounds": True}])
def test_a_rule_outside_its_limits_is_refused(wrong):
    with pytest.raises(InvalidInput):
        Averaging(**wrong)


def test_a_file_that_exists_is_not_written_over(place: World) -> None:
    with pytest.raises(InvalidInput, match="must be a new file"):
        called("average", average(place), *models(place))
