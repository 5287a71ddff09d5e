"""A model file is proved with its names and shapes: the session's identifier binds them, by the nonce in the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn
from typer.testing import CliRunner

from commands.test_model import called
from federation.worlds import World, initial, world
from integrity.parties import federation, honest_round, secret
from lrdp.cli import app
from lrdp.errors import NotVerified
from lrdp.federation import Averaging, VerifiedAverage
from lrdp.federation.local.exporting import completed, export, verified_by
from lrdp.federation.local.onnx_files import ModelInput, write_onnx
from lrdp.federation.server.saved_state import STATE_FILE
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.model_averages import averaged, read_kept
from lrdp.federation.wire.model_files import KeptModel, metadata, read_model, write_model
from lrdp.federation.wire.questions import Hello
from lrdp.federation.wire.signing import run_identifier
from lrdp.integrity import history

SHAPES = (("q", (4, 2)), ("k", (4, 2)), ("bias", (3,)))
OTHERS = "the file's names, shapes, session or nonce are not those of the receipt's session"
NONE = "an earlier version wrote this file without the session's nonce"
FORMATS = (".safetensors", ".pt", ".onnx")


class Named(nn.Module):
    """Parameters of any names and shapes."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        for name, shape in layout.shapes:
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows * sum(each.sum() for each in self.parameters())


def written(kept: KeptModel, path: Path) -> Path:
    """A file in the format of its ending, all of whose parts agree with each other."""
    if path.suffix == ".onnx":
        write_onnx(path, kept, Named(kept.layout), [ModelInput.read("4")])
    else:
        export(kept, path)
    return path


@dataclass(frozen=True)
class Scene:
    """The models after some rounds of one session, the receipts, and what a verifier has pinned."""

    models: tuple[KeptModel, ...]
    folder: Path
    pin: str

    @property
    def last(self) -> KeptModel:
        return self.models[-1]

    def verify(self, path: Path) -> tuple[int, str]:
        """The exit code of `lrdp model verify`, and what it says."""
        words = ["model", "verify", str(path), "--pin", self.pin, "--receipts", str(self.folder)]
        done = CliRunner().invoke(app, words)
        if isinstance(done.exception, NotVerified):
            return 5, str(done.exception)
        return done.exit_code, done.output


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    layout, nonce, folder = Layout(SHAPES), secret("nonce"), tmp_path_factory.mktemp("session")
    parties = federation(3, size=layout.size, identifier=run_identifier(nonce, layout.described))
    opened = Hello(session=parties.session.encode(), nonce=nonce, layout=layout.described)
    lines, models = [history.session_line(parties.session)], []
    for _ in range(3):
        lines.append(history.step_line(honest_round(parties).encode()))
        models.append(KeptModel.at(parties.idle.position, parties.idle.model, opened=opened))
        write_model(folder / f"model-{models[-1].session[:16]}-{models[-1].round:05}.safetensors", models[-1])
    (folder / f"receipts-{models[-1].session[:16]}.txt").write_text("\n".join(lines) + "\n")
    return Scene(tuple(models), folder, parties.session.registry.digest.hex())


def laid_out(*shapes: tuple[str, tuple[int, ...]]) -> Callable[[KeptModel], KeptModel]:
    return lambda kept: replace(kept, layout=Layout(shapes))


FORGED: dict[str, tuple[Callable[[KeptModel], KeptModel], str]] = {
    "names swapped": (laid_out(("k", (4, 2)), ("q", (4, 2)), ("bias", (3,))), OTHERS),
    "renamed": (laid_out(("q", (4, 2)), ("v", (4, 2)), ("bias", (3,))), OTHERS),
    "reshaped": (laid_out(("q", (2, 4)), ("k", (4, 2)), ("bias", (3,))), OTHERS),
    "one more dimension": (laid_out(("q", (4, 2)), ("k", (4, 2)), ("bias", (1, 3))), OTHERS),
    "cut elsewhere": (laid_out(("q", (4, 2)), ("k", (3,)), ("bias", (4, 2))), OTHERS),
    "a nonce of another session": (lambda kept: replace(kept, nonce=secret("another")), OTHERS),
    "an empty nonce": (lambda kept: replace(kept, nonce=b""), OTHERS),
    "the name of another session": (lambda kept: replace(kept, session="5e" * 32), OTHERS),
    "no nonce": (lambda kept: replace(kept, nonce=None), NONE),
    "no nonce and names swapped": (
        lambda kept: replace(kept, nonce=None, layout=Layout((SHAPES[1], SHAPES[0], SHAPES[2]))),
        NONE,
    ),
}


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("case", FORGED)
def test_the_receipts_own_values_under_other_names_or_in_other_shapes_are_not_proved(
    scene: Scene, tmp_path: Path, case: str, ending: str
) -> None:
    change, sentence = FORGED[case]
    path = written(change(scene.last), tmp_path / f"forged{ending}")
    # by the name of the receipts, as a forger may have named another session
    code, said = replace(scene, folder=next(scene.folder.glob("receipts-*"))).verify(path)
    assert (code, sentence in said, "\n" in said) == (5, True, False), said


@pytest.mark.parametrize("ending", FORMATS)
def test_control_the_sessions_own_names_are(scene: Scene, tmp_path: Path, ending: str) -> None:
    code, said = scene.verify(written(scene.last, tmp_path / f"own{ending}"))
    assert code == 0, said


def test_what_is_no_nonce_fits_no_session(scene: Scene, tmp_path: Path) -> None:
    path = written(scene.last, tmp_path / "own.safetensors")
    for nonce in ("", "no", "é" * 40, (scene.last.nonce or b"").hex()[:-2]):
        save_file(load_file(path), tmp_path / "other.safetensors", {**metadata(path.read_bytes()), "nonce": nonce})
        code, said = scene.verify(tmp_path / "other.safetensors")
        assert (code, OTHERS in said) == (5, True), said


AVERAGES: dict[str, tuple[Callable[[Scene], tuple[KeptModel, ...]], int]] = {
    "its own": (lambda scene: scene.models, 0),
    "the first of an earlier version": (lambda scene: (replace(scene.models[0], nonce=None), *scene.models[1:]), 0),
    "all of an earlier version": (lambda scene: tuple(replace(each, nonce=None) for each in scene.models), 5),
    "names swapped in all": (lambda scene: tuple(map(FORGED["names swapped"][0], scene.models)), 5),
    "a nonce of another session": (
        lambda scene: tuple(replace(each, nonce=secret("another")) for each in scene.models),
        5,
    ),
}


@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
@pytest.mark.parametrize("case", AVERAGES)
def test_an_average_is_proved_under_the_sessions_names_alone(
    scene: Scene, tmp_path: Path, case: str, ending: str
) -> None:
    """The server's own files of the models lie beside the receipts, and give the same values."""
    made, expected = AVERAGES[case]
    export(averaged(Averaging(rounds=3, decay=0.7), made(scene)), tmp_path / f"average{ending}")
    code, said = scene.verify(tmp_path / f"average{ending}")
    assert (code, "\n" in said) == (expected, expected == 0), said


# ------------------------------------------------------------------------------------------------ of an earlier version
def aged(place: World) -> list[Path]:
    """The server's files as an earlier version wrote them."""
    paths = sorted(place.consortium.server_folder.glob("*-*.safetensors"))
    for path in paths:
        about = metadata(path.read_bytes())
        assert len(about.pop("nonce")) == 64
        save_file(load_file(path), path, about)
    return paths


def test_an_older_file_is_shown_exported_and_averaged_and_the_next_rounds_are_proved(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    place.run(2, average=Averaging(rounds=2))
    folder, pin = place.consortium.server_folder, place.consortium.registry().digest.hex()
    average, first, last = aged(place)
    assert called("show", last)["round"] == 2
    for path in (average, first, last):
        with pytest.raises(NotVerified, match=NONE):
            called("verify", path, "--pin", pin)
    called("average", tmp_path / "average.safetensors", first, last)
    assert called("show", tmp_path / "average.safetensors")["model"] == called("show", average)["model"]

    VerifiedAverage.resume(folder).start(place.grid, num_rounds=3, timeout=5)
    newest = max(folder.glob("model-*.safetensors"))
    assert called("verify", newest, "--pin", pin)["round"] == 3
    renewed = max(folder.glob("average-*.safetensors"))
    assert called("verify", renewed, "--pin", pin)["average_of_rounds"] == [2, 3]
    assert read_model(last).nonce is None, "one of the two that it is made of is the older one"


def test_an_older_file_is_proved_once_it_is_exported_again_by_the_server_or_a_client(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    place.run(2, average=Averaging(rounds=2))
    folder, pin = place.consortium.server_folder, place.consortium.registry().digest.hex()
    for path in aged(place):
        for ending in (".safetensors", ".pt"):
            out = tmp_path / f"{path.stem}{ending}"
            called("export", out, "--model", path)
            assert called("verify", out, "--pin", pin, "--receipts", folder)["verified"] is True
    called("export", tmp_path / "own.pt", "--client", place.consortium.client("hospital-1").folder)
    assert called("verify", tmp_path / "own.pt", "--pin", pin, "--receipts", folder)["round"] == 2


def test_elsewhere_and_beside_another_sessions_state_it_is_exported_as_it_is(tmp_path: Path) -> None:
    place, other = world(tmp_path / "place", 3), world(tmp_path / "other", 3)
    place.run(1)
    other.strategy()._terms.open(initial())
    (path,) = aged(place)
    elsewhere = other.consortium.server_folder / path.name
    elsewhere.write_bytes(path.read_bytes())
    called("export", tmp_path / "copy.pt", "--model", elsewhere)
    pin = place.consortium.registry().digest.hex()
    with pytest.raises(NotVerified, match=NONE):
        called("verify", tmp_path / "copy.pt", "--pin", pin, "--receipts", path.parent)
    kept = read_kept(path)
    assert completed(kept, path.parent).nonce is not None
    assert completed(kept, tmp_path).nonce is None
    (path.parent / STATE_FILE).write_bytes(os.urandom(37))
    assert completed(kept, path.parent).nonce is None


def test_a_model_that_is_exported_while_its_client_goes_on_is_the_one_that_it_verified(tmp_path: Path) -> None:
    """A client writes over the files of vectors that it needs no more."""
    place = world(tmp_path, 3)
    place.run(1)
    kept = verified_by(place.consortium.client("hospital-0").folder)
    place.run(3)
    export(kept, tmp_path / "out.safetensors")
    assert read_model(tmp_path / "out.safetensors").digest == kept.digest
