"""A model file is tied to the receipt that proves it, and can be had in the formats that people use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file, save_file
from typer.testing import CliRunner

from federation.rotations import rotate
from federation.test_rotation import at_round
from federation.worlds import World, world
from federation.worlds import model as linear
from integrity.test_depositions import framed
from lrdp.cli import app
from lrdp.errors import InvalidInput, LrdpError, NotVerified
from lrdp.federation.local.exporting import export
from lrdp.federation.wire.case_files import write_case
from lrdp.federation.wire.model_files import metadata, read_model
from lrdp.integrity import model_hash


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = world(tmp_path_factory.mktemp("models"), 3)
    made.run(2)
    return made


def last_model(place: World) -> Path:
    (path,) = place.consortium.server_folder.glob("model-*.safetensors")
    return path


def called(*words: object) -> dict[str, object]:
    done = CliRunner().invoke(app, ["model", *map(str, words), "--json"], catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def test_a_file_is_proved_by_the_receipt_of_its_round(place: World) -> None:
    pin, path = place.consortium.registry().digest.hex(), last_model(place)
    shown = called("show", path)
    assert (shown["round"], shown["parameters"], shown["tensors"]) == (2, 10, 2)
    proved = called("verify", path, "--pin", pin)
    assert proved["verified"] is True
    assert proved["participants"] == place.names
    position = place.audit().position
    assert position is not None
    assert (proved["model"], proved["tip"]) == (position.model.hex(), position.tip.hex())
    assert called("verify", path, "--pin", pin, "--receipts", place.consortium.server_folder)["verified"] is True


def test_a_model_is_proved_after_the_registry_changed(tmp_path: Path) -> None:
    """The session keeps the name under which it was opened, and so do its receipts."""
    place = world(tmp_path, 4)
    place.run(2, choose=at_round({0: lambda: rotate(place, without=["hospital-3"])}))
    pin, path = place.consortium.registry().digest.hex(), last_model(place)
    proved = called("verify", path, "--pin", pin)
    assert (proved["verified"], proved["participants"]) == (True, place.names[:3])
    exported = tmp_path / "own.safetensors"
    called("export", exported, "--client", place.consortium.client("hospital-0").folder)
    assert called("verify", exported, "--pin", pin, "--receipts", path.parent)["session"] == proved["session"]


def test_another_model_under_the_same_words_is_not(place: World, tmp_path: Path) -> None:
    """Whoever forges a file writes the right hash for the wrong parameters, or their own hash into the words."""
    pin, path = place.consortium.registry().digest.hex(), last_model(place)
    kept, forged = read_model(path), tmp_path / path.name
    receipts = ("--receipts", place.consortium.server_folder)
    about = {"session": kept.session, "round": "2", "tip": kept.tip, "layout": kept.layout.described.hex()}
    arrays = kept.layout.arrays(kept.vector + np.float32(0.5))
    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    save_file(tensors, forged, {**about, "model": kept.digest})
    with pytest.raises(InvalidInput, match="damaged or was changed"):
        called("verify", forged, "--pin", pin, *receipts)
    save_file(tensors, forged, {**about, "model": model_hash(kept.layout.flat(arrays)).hex()})
    with pytest.raises(NotVerified, match=r"no receipt in .* leads to this model"):
        called("verify", forged, "--pin", pin, *receipts)
    with pytest.raises(NotVerified, match="pinned is"):
        called("verify", path, "--pin", "00" * 32)


def test_a_hospital_exports_the_model_that_it_verified_itself(place: World, tmp_path: Path) -> None:
    server = read_model(last_model(place))
    for name in place.names:
        out = tmp_path / f"{name}.safetensors"
        called("export", out, "--client", place.consortium.client(name).folder)
        own = read_model(out)
        assert (own.digest, own.round, own.tip) == (server.digest, 2, server.tip)
        assert set(load_file(out)) == {"weight", "bias"}


def test_what_is_exported_for_torch_is_a_state_dict_that_the_same_receipt_proves(place: World, tmp_path: Path) -> None:
    out, pin = tmp_path / "model.pt", place.consortium.registry().digest.hex()
    called("export", out, "--client", place.consortium.client(place.names[0]).folder)
    found = torch.load(out, weights_only=True)
    torch.nn.Linear(4, 2).load_state_dict(found)
    kept = read_model(last_model(place))
    np.testing.assert_array_equal(found["weight"].numpy(), kept.layout.arrays(kept.vector)["weight"])
    assert called("show", out) == called("show", last_model(place))
    receipts = ("--pin", pin, "--receipts", place.consortium.server_folder)
    proved = called("verify", out, *receipts)
    assert (proved["verified"], proved["model"], proved["participants"]) == (True, kept.digest, place.names)
    with pytest.raises(InvalidInput, match="exists: nothing was written"):
        called("export", out, "--model", last_model(place))


def test_another_state_dict_under_the_same_words_is_not_proved(place: World, tmp_path: Path) -> None:
    """One weight is another; and whoever forges a file may write the hash of that into its words."""
    pin, kept = place.consortium.registry().digest.hex(), read_model(last_model(place))
    vector = kept.vector.copy()
    vector[7] = np.nextafter(vector[7], np.float32(9))
    receipts = ("--pin", pin, "--receipts", place.consortium.server_folder)
    export(replace(kept, vector=vector), tmp_path / "changed.pt")
    with pytest.raises(InvalidInput, match="damaged or was changed"):
        called("verify", tmp_path / "changed.pt", *receipts)
    export(replace(kept, vector=vector, digest=model_hash(vector).hex()), tmp_path / "forged.pt")
    with pytest.raises(NotVerified, match=r"no receipt in .* leads to this model"):
        called("verify", tmp_path / "forged.pt", *receipts)


def test_a_model_that_came_through_torch_is_the_same_again(place: World, tmp_path: Path) -> None:
    called("export", tmp_path / "own.pt", "--model", last_model(place))
    called("export", tmp_path / "own.safetensors", "--model", tmp_path / "own.pt")
    called("export", tmp_path / "again.pt", "--model", tmp_path / "own.safetensors")
    assert (tmp_path / "own.pt").read_bytes() == (tmp_path / "again.pt").read_bytes()


def test_what_is_exported_to_onnx_computes_the_same_and_is_proved_by_the_same_receipt(
    place: World, tmp_path: Path
) -> None:
    import onnx
    import onnxruntime

    out, pin = tmp_path / "model.onnx", place.consortium.registry().digest.hex()
    receipts = ("--pin", pin, "--receipts", place.consortium.server_folder)
    home = place.consortium.client(place.names[0]).folder
    called("export", out, "--client", home, "--task", "federation.worlds:model", "--input", "4")
    onnx.checker.check_model(onnx.load(out), full_check=True)
    rows = np.random.default_rng(5).normal(size=(17, 4)).astype(np.float32)  # another number of rows than was traced
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: rows})
    kept, model = read_model(last_model(place)), linear()
    kept.layout.write(kept.vector, model)
    np.testing.assert_allclose(found, model(torch.from_numpy(rows)).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert called("verify", out, *receipts)["model"] == kept.digest
    assert str(Path(torch.__file__).parent).encode() not in out.read_bytes(), "no path of this machine"
    forged = onnx.load(out)
    forged.graph.initializer[0].raw_data = bytes(len(forged.graph.initializer[0].raw_data))
    onnx.save(forged, tmp_path / "forged.onnx")
    with pytest.raises(InvalidInput, match="damaged or was changed"):
        called("verify", tmp_path / "forged.onnx", *receipts)


def elsewhere(weight: Any) -> None:
    """In a file of the working directory, which holds the right values as long as it is verified."""
    weight.external_data.add(key="location", value="weights.bin")
    Path("weights.bin").write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = 1


OTHER_WEIGHTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "in another file": (lambda graph: elsewhere(graph.initializer[0]), "has its weights in other files"),
    "twice": (lambda graph: graph.initializer.insert(0, graph.initializer[0]), "has two weights of one name"),
    "in two ways": (lambda graph: graph.initializer[0].float_data.append(9.0), "is damaged: ValidationError"),
}


@pytest.mark.parametrize("kind", OTHER_WEIGHTS)
def test_weights_that_a_runtime_may_find_otherwise_are_not_proved(
    place: World, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    monkeypatch.chdir(tmp_path)
    forge, sentence = OTHER_WEIGHTS[kind]
    receipts = ("--pin", place.consortium.registry().digest.hex(), "--receipts", place.consortium.server_folder)
    model = ("--model", last_model(place), "--task", "federation.worlds:model", "--input", "4")
    called("export", tmp_path / "model.onnx", *model)
    forged = onnx.load(tmp_path / "model.onnx")
    assert forged.graph.initializer[0].raw_data
    forge(forged.graph)
    (tmp_path / "forged.onnx").write_bytes(forged.SerializeToString())
    with pytest.raises(InvalidInput, match=sentence):
        called("verify", tmp_path / "forged.onnx", *receipts)


def _onnx(folder: Path, form: str, task: str = "federation.worlds:model") -> tuple[object, ...]:
    return ("export", folder / "m.onnx", "--model", folder / "good", "--task", task, "--input", form)


REFUSED: dict[str, tuple[Callable[[Path], tuple[object, ...]], str]] = {
    "a folder": (lambda folder: ("show", folder), "cannot be read: "),
    "nothing": (lambda folder: ("show", folder / "absent"), "cannot be read: "),
    "other bytes": (lambda folder: ("show", folder / "bytes"), "is not a safetensors file"),
    "no session": (lambda folder: ("show", folder / "bare"), "does not say which round"),
    "onnx": (lambda folder: ("export", folder / "m.onnx", "--model", folder / "good"), "with --task and --input"),
    "no torch": (lambda folder: ("show", folder / "bytes.pt"), "is not an archive of torch"),
    "no file for torch": (lambda folder: ("verify", folder / "no.pt", "--pin", "ab" * 32), "cannot be read: "),
    "a folder for torch": (lambda folder: ("show", folder / "folder.pt"), "cannot be read: "),
    "torch's own": (lambda folder: ("verify", folder / "own.pt", "--pin", "ab" * 32), "does not say which round"),
    "no onnx": (lambda folder: ("show", folder / "bytes.onnx"), "is not an ONNX file"),
    "no input": (lambda folder: _onnx(folder, "x4"), "--input must be the form"),
    "another input": (lambda folder: _onnx(folder, "7"), "cannot be exported to ONNX with inputs of"),
    "a huge input": (lambda folder: _onnx(folder, "1000000000000"), "cannot be exported to ONNX with inputs of"),
    "a type without zeros": (lambda folder: _onnx(folder, "quint8:37"), "cannot be exported to ONNX with inputs of"),
    "a long input": (lambda folder: _onnx(folder, "9" * 5000), "--input must be the form"),
    "a round of many digits": (lambda folder: ("show", folder / "digits"), "does not say which round"),
    "a session that is a path": (lambda folder: ("show", folder / "path"), "does not say which round"),
    "another model": (lambda folder: _onnx(folder, "4", "torch.nn:Identity"), "not the file's"),
    "both": (lambda folder: ("export", folder / "m.pt", "--model", folder, "--client", folder), "not both"),
    "no client": (lambda folder: ("export", folder / "m.pt", "--client", folder), "not the folder of a client"),
    "a short pin": (lambda folder: ("verify", folder / "good", "--pin", "ab"), "64 hexadecimal digits"),
    "no receipts": (
        lambda folder: ("verify", folder / "good", "--pin", "ab" * 32),
        "or the server's folder, with --receipts",
    ),
    "no place": (lambda folder: ("export", folder / "x" / "m.pt", "--model", folder / "good"), "cannot be written"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_or_written_is_said_in_one_sentence(place: World, tmp_path: Path, case: str) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff" * 100)
    (tmp_path / "bytes.onnx").write_bytes(b"\xff" * 100)
    (tmp_path / "bytes.pt").write_bytes(b"\xff" * 100)
    (tmp_path / "folder.pt").mkdir()
    torch.save(linear().state_dict(), tmp_path / "own.pt")
    save_file({"weight": torch.zeros(2)}, tmp_path / "bare")
    good = last_model(place).read_bytes()
    (tmp_path / "good").write_bytes(good)
    about = metadata(good)
    save_file(load(good), tmp_path / "digits", {**about, "round": "9" * 5000})
    save_file(load(good), tmp_path / "path", {**about, "session": "../../secrets"})
    words, sentence = REFUSED[case]
    with pytest.raises(LrdpError, match=sentence) as refused:
        called(*words(tmp_path))
    assert "\n" not in str(refused.value)


HIDING = """
import json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
lines = json.loads(sys.argv[2])
from lrdp.cli import main
for line in lines:
    sys.argv = ["lrdp", *line]
    try:
        main()
    except SystemExit as ended:
        print(f"ended {ended.code}", file=sys.stderr)
"""


def without(packages: list[str], lines: list[list[str]]) -> list[str]:
    """What each of these lines says and how it ends, in a process that cannot import some packages."""
    words = [sys.executable, "-c", HIDING, json.dumps(packages), json.dumps(lines)]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stderr.splitlines()


def every_line(place: World, folder: Path) -> list[list[str]]:
    """Each command that reads or writes a model, or a case."""
    pin, path, scene = place.consortium.registry().digest.hex(), str(last_model(place)), framed()
    write_case(folder / "case.safetensors", scene.case(scene.honest()))
    accused = scene.stage.federation.session.registry.digest.hex()
    return [
        ["model", "show", path],
        ["model", "verify", path, "--pin", pin],
        ["model", "average", str(folder / "average.safetensors"), path],
        ["model", "export", str(folder / "servers.pt"), "--model", path],
        ["model", "export", str(folder / "own.pt"), "--client", str(place.consortium.client("hospital-0").folder)],
        ["model", "verify", str(folder / "own.pt"), "--pin", pin, "--receipts", str(place.consortium.server_folder)],
        ["blame", str(folder / "case.safetensors"), "--pin", accused],
    ]


def test_a_hospital_that_has_no_flower_exports_its_model_and_judges_a_case(place: World, tmp_path: Path) -> None:
    """As in the guard's image."""
    lines = every_line(place, tmp_path)
    said = without(["flwr", "ray"], lines)
    assert [line for line in said if line.startswith("ended")] == ["ended 0"] * len(lines), said
    assert torch.load(tmp_path / "own.pt", weights_only=True).keys() == linear().state_dict().keys()


@pytest.mark.parametrize("package", ["torch", "safetensors"])
def test_what_models_are_read_with_and_is_missing_is_named_with_what_to_install(
    place: World, tmp_path: Path, package: str
) -> None:
    lines = every_line(place, tmp_path)
    sentence = (
        f"Error: {package} must be installed to read and write models: pip install 'lrdp[train]'; Flower is not needed "
        f"for it."
    )
    assert without([package], lines) == [sentence, "ended 2"] * len(lines)
