"""The light install, as an auditor has it: a fresh environment, no constraints, neither torch nor Flower."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from images import copy_for_build
from integrity.parties import federation, honest_round
from ledger.worlds import World, request, round_trip
from lrdp.accounting import Adjacency, FixedSizeGaussian, RenyiAccountant
from lrdp.integrity import history
from lrdp.ledger.export import write_export

ROOT = Path(__file__).parents[1]
STEP = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=6.0)
EPSILON = "epsilon -n 5000 -b 128 -t 1000 --noise-multiplier 6 --delta 1e-5 --accountant rdp --json"
PILOT = "--dataset-size 150 --batch-size 8 --rounds 2 --local-steps 2 --delta 1e-5"

pytestmark = pytest.mark.timeout(900)


def oldest() -> list[str]:
    """The lower end of each range that the package asks for."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [requirement.split(",")[0].replace(">=", "==") for requirement in asked]


def classified() -> list[str]:
    """The versions of Python that the package says it is for."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return [found[1] for each in classifiers if (found := re.fullmatch(r".* :: Python :: (3\.\d+)", each))]


def interpreter(name: str) -> str | None:
    """One of this name that starts: on the path, or among pyenv's, whose shim may be there without its Python."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(name), *sorted(map(str, pyenv.glob(f"*/bin/{name}")))]
    return next((each for each in found if each and starts(each)), None)


def starts(python: str) -> bool:
    return not subprocess.run([python, "--version"], check=False, capture_output=True).returncode


def environment(folder: Path, *installed: object, python: str = sys.executable) -> Path:
    subprocess.run([python, "-m", "venv", folder], check=True)
    install = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-compile", *map(str, installed)]
    subprocess.run([folder / "bin" / "python", *install], check=True, cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the source archive, as they would be published."""
    folder = tmp_path_factory.mktemp("built")
    environment(folder / "tools", "hatchling>=1.27")
    build(folder, ROOT, folder)
    return folder


def build(made: Path, source: Path, folder: Path, *options: str) -> None:
    command: list[str | Path] = [made / "tools" / "bin" / "hatchling", "build", "--directory", folder, *options]
    subprocess.run(command, check=True, cwd=source, capture_output=True)


def unpacked(built: Path, folder: Path) -> Path:
    (archive,) = built.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder, filter="data")
    (source,) = folder.iterdir()
    return source


def contents(folder: Path) -> dict[str, bytes]:
    """Of the one wheel in there."""
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_the_source_archive_makes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    build(built, unpacked(built, tmp_path / "source"), tmp_path / "again", "--target", "wheel")
    assert contents(tmp_path / "again") == contents(built)


def test_images_of_the_source_archive_have_the_same_wheel(built: Path, tmp_path: Path) -> None:
    """No container engine is needed: the build is given what the Containerfile copies, and nothing else."""
    source = unpacked(built, tmp_path / "source")
    stages, ignored = ((source / "deploy" / f"Containerfile{end}").read_text() for end in ("", ".dockerignore"))
    copy_for_build(source, tmp_path / "image", stages, ignored)
    build(built, tmp_path / "image", tmp_path / "again", "--target", "wheel")
    assert contents(tmp_path / "again") == contents(built)
    controls = (
        (stages.replace("COPY deploy/compose", "# COPY deploy/compose"), ignored),
        (stages, ignored.replace("!deploy/pilot.env\n", "")),
    )
    for number, control in enumerate(controls):
        copy_for_build(source, tmp_path / f"control-{number}", *control)
        with pytest.raises(subprocess.CalledProcessError):
            build(built, tmp_path / f"control-{number}", tmp_path / "none", "--target", "wheel")


@pytest.mark.parametrize(
    ("pattern", "also", "python"),
    [
        pytest.param("*.whl", [], sys.executable, id="the newest, from the wheel"),
        pytest.param("*.tar.gz", [], sys.executable, id="the newest, from the source archive", marks=pytest.mark.slow),
        pytest.param("*.whl", oldest(), sys.executable, id="the oldest", marks=pytest.mark.slow),
        *(
            pytest.param("*.whl", [], f"python{version}", id=f"Python {version}", marks=pytest.mark.slow)
            for version in classified()
            if version != "3.11"  # which runs all other tests
        ),
    ],
)
def test_an_auditor_needs_no_more_than_the_package(
    built: Path, tmp_path: Path, pattern: str, also: list[str], python: str
) -> None:
    found = interpreter(python)
    if found is None:
        pytest.skip(f"{python} is not here")
    (package,) = built.glob(pattern)
    binaries = environment(tmp_path / "auditor", package, *also, python=found)

    def called(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        path = {"PATH": "/usr/bin:/bin"}  # and nothing else of what the tests run with
        command: list[str | Path] = [binaries / program, *words]
        return subprocess.run(command, check=False, cwd=tmp_path, env=path, capture_output=True, text=True)

    def lrdp(words: str) -> subprocess.CompletedProcess[str]:
        return called("lrdp", *words.split())

    for heavy in ("torch", "flwr"):
        assert "No module named" in called("python", "-c", f"import {heavy}").stderr

    spent = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE).epsilon({STEP: 1000}, 1e-5)
    assert json.loads(lrdp(EPSILON).stdout)["epsilon"] == pytest.approx(spent.epsilon, rel=1e-9)

    with World(folder=tmp_path).create() as ledger:
        round_trip(ledger, request(1))
        write_export(ledger, tmp_path / "export.txt")
    assert lrdp("ledger verify export.txt").returncode == 0

    world = federation(4)
    lines = [history.session_line(world.session), history.step_line(honest_round(world).encode())]
    (tmp_path / "receipts").write_text("\n".join(lines) + "\n")
    verified = lrdp(f"verify receipts --pin {world.session.registry.digest.hex()} --json")
    assert json.loads(verified.stdout)["verified"] is True, verified

    assert lrdp(f"found a b c --folder pilot {PILOT}").returncode == 0
    compose = tmp_path / "pilot" / "compose"
    assert {path.name for path in compose.iterdir()} == {"hospital.yaml", "server.yaml", "pilot.yaml", "pilot.env"}
    assert "docker build --file deploy/Containerfile" in (compose / "pilot.yaml").read_text()

    for words, said in (("epsilon --steps many", "--steps"), ("epsilon", "Missing option"), ("guess", "guess")):
        refused = lrdp(words)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), refused.stderr
        assert refused.stderr.startswith("Error: ")
        assert said in refused.stderr
    assert "pip install" in lrdp("run").stderr
