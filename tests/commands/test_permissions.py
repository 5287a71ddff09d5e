"""Files and folders that a user may not write or not read: one sentence, and all stays as it is.

Modes mean nothing to root, so whoever runs these tests as root becomes nobody for the line that is tried.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from . import surface
from .endings import Run, everything, in_one_sentence
from .surface import LINES

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are posix's")

NOBODY = 65534
HERE = {".": 2}
"""A new file, or one in the place of another: the folder has to let it be made."""
DENIED = {
    **dict.fromkeys(("init", "found", "statement", "keys new", "registry new", "epsilon", "plan"), HERE),
    **dict.fromkeys(("ledger export", "ledger import", "ledger backup", "model average", "model export"), HERE),
    **dict.fromkeys(("registry add", "registry replace-key", "registry remove", "registry sign"), HERE),
    "registry rotate": {"server": 2},
    # SQLite writes to the file, and its journal beside it.
    "ledger adopt-head": {"restored": 6, "restored/ledger.db": 6},
    "ledger void": {"charged": 6, "charged/ledger.db": 6},
    "ledger raise": {"raised": 6, "raised/ledger.db": 6},
    "ledger close": {"ended": 6, "ended/ledger.db": 6},
    "ledger restore": {"lost": 6},
    "ledger rotate-key": {"home": 6, "home/ledger.db": 6, "home/keys": 2},
}
"""What each command needs to write to in its world, and how it ends where that may not be written."""
REPLACED = {
    **dict.fromkeys(("registry add", "registry replace-key", "registry remove", "registry sign"), "open.json"),
    "ledger rotate-key": "home/keys/client.pem",
}
"""Files that may be read-only, as for `mv`: the command was told to put another in their place."""
BEGUN = "home/keys/client.next.pem"
"""What `ledger rotate-key` leaves for the next time, and says so: see tests/ledger/test_rotation.py."""
READ = [
    (name, parameter)
    for name, line in LINES.items()
    for parameter, role in line.paths.items()
    if not line.long and parameter in line.given and "nowhere" in role.spoiled and role is not surface.ELSEWHERE
]


@contextmanager
def as_nobody(*paths: Path, without: int) -> Iterator[None]:
    """Within the block these paths lack some permissions, and root is nobody."""
    root, modes = os.geteuid() == 0, {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    for path, mode in reversed(modes.items()):  # what is in a folder comes before it
        path.chmod(mode & ~without)
    try:
        if root:
            os.seteuid(NOBODY)
        yield
    finally:
        if root:
            os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Where nobody may go: the folders of the tests are root's own."""
    with TemporaryDirectory(prefix="lrdp-nobody-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@pytest.fixture
def theirs(lrdp: Run, folder: Path, place: Path) -> Path:  # lrdp makes the folder's contents
    """The world as nobody's own, for lines that change nothing in it."""
    copy = place / "world"
    if not copy.exists():
        shutil.copytree(folder, copy)
        for each in [copy, *copy.rglob("*")] if os.geteuid() == 0 else []:
            os.chown(each, NOBODY, NOBODY, follow_symlinks=False)
    return copy


def written(before: dict[str, bytes | int], after: dict[str, bytes | int]) -> Iterator[str]:
    """Each file that is another one now, and the nearest folder that was there before it."""
    for path, content in after.items():
        if before.get(path) != content:
            yield next(str(each) for each in Path(path).parents if str(each) in {".", *before})
            if path in before:
                yield path


@pytest.mark.parametrize(("name", "also"), [*surface.WRITING, *surface.ASKED_TO])
def test_what_may_not_be_written_is_one_sentence_and_all_stays_as_it_is(
    lrdp: Run, folder: Path, theirs: Path, tmp_path: Path, name: str, also: dict[str, str]
) -> None:
    line, before = surface.words(name, **also), everything(folder)
    works = tmp_path / "world"
    shutil.copytree(folder, works)
    control = lrdp(*line, inside=works)
    assert control.code == 0, control.err
    # Else a file that a command writes to would not be tried.
    assert set(written(before, everything(works))) - {REPLACED.get(name)} == DENIED[name].keys()
    for target, code in DENIED[name].items():
        with as_nobody(theirs / target, without=0o222):
            ended = lrdp(*line, inside=theirs)
        assert in_one_sentence(ended, code) is None, (target, ended)
        (theirs / BEGUN).unlink(missing_ok=True)
        assert everything(theirs) == before, target


@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_as_a_whole_may_be_read_only(lrdp: Run, folder: Path, tmp_path: Path, name: str) -> None:
    """By root as by anybody: it is the folder's mode that counts."""
    place = tmp_path / "world"
    shutil.copytree(folder, place)
    (place / REPLACED[name]).chmod(0o400)
    assert lrdp(*surface.words(name), inside=place).code == 0
    assert (place / REPLACED[name]).read_bytes() != (folder / REPLACED[name]).read_bytes()


@pytest.mark.parametrize(("name", "parameter"), READ)
def test_what_may_not_be_read_is_one_sentence_and_all_stays_as_it_is(
    lrdp: Run, theirs: Path, name: str, parameter: str
) -> None:
    """With the code of what is not there, which is as far as anybody can see."""
    before, given = everything(theirs), LINES[name].given[parameter]
    with as_nobody(theirs / (given[0] if isinstance(given, list) else given), without=0o777):
        ended = lrdp(*surface.words(name), inside=theirs)
    assert in_one_sentence(ended, LINES[name].paths[parameter].spoiled["nowhere"]) is None, ended
    assert "Permission denied" in ended.err
    assert everything(theirs) == before


def test_a_folder_of_cases_that_may_not_be_read_is_not_called_empty(lrdp: Run, theirs: Path) -> None:
    with as_nobody(theirs / "server", without=0o777):
        ended = lrdp(*surface.words("blame", case="server"), inside=theirs)
    assert in_one_sentence(ended, 2) is None
    assert "server cannot be read: Permission denied" in ended.err


@pytest.mark.parametrize("name", [name for name in surface.QUICK if not LINES[name].writes])
def test_who_only_reads_needs_no_more(lrdp: Run, theirs: Path, name: str) -> None:
    """An auditor has a copy that cannot be written: a disk that is mounted so, or somebody else's folder."""
    before, line = everything(theirs), surface.words(name)
    assert lrdp(*line, inside=theirs).code == 0, "what it imports may be root's"
    with as_nobody(theirs, *theirs.rglob("*"), without=0o222):
        ended = lrdp(*line, inside=theirs)
    assert ended.code == 0, ended
    assert everything(theirs) == before
