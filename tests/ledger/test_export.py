import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.worlds import STEP, World, request, round_trip
from lrdp.errors import InvalidInput, LedgerDamaged
from lrdp.ledger.export import digests_at, verify_export, write_export


@pytest.fixture
def exported(world: World) -> Path:
    path = world.folder / "export.txt"
    with world.create() as ledger:
        for number in range(3):
            round_trip(ledger, request(number))
        write_export(ledger, path)
    return path


def test_an_export_holds_all_that_the_ledger_says(world: World, exported: Path) -> None:
    from_ledger, from_export = verify_export(world.path), verify_export(exported)
    assert from_ledger.books.digest == from_export.books.digest
    assert from_ledger.books.charges.history == from_export.books.charges.history == {STEP: 117}
    assert from_ledger.books.charges.states == from_export.books.charges.states
    assert from_export.head is not None
    assert from_export.head.is_signed_by(world.key.public)
    assert digests_at(exported, {3, 5}) == digests_at(world.path, {3, 5, 99})


def test_an_export_is_readable_with_standard_tools_alone(exported: Path) -> None:
    """The chain as docs/ledger.md describes it, by somebody who has never seen our code."""
    from hashlib import sha256

    previous = sha256(b"lrdp ledger, format 1").digest()
    rows = exported.read_bytes().split(b"\n")
    for row in rows[1:-2]:
        digest, line = row.split(b"\t", 1)
        previous = sha256(previous + line).digest()
        assert previous.hex().encode() == digest
    assert rows[-2].startswith(b"HEAD\tlrdp-head-2 ")


def test_every_changed_line_of_an_export_is_noticed(exported: Path) -> None:
    rows = exported.read_bytes().split(b"\n")
    for index in range(1, len(rows) - 1):
        for place in (0, 30, 70, len(rows[index]) - 1):
            changed = bytearray(rows[index])
            changed[place] ^= 0x01
            exported.write_bytes(b"\n".join([*rows[:index], bytes(changed), *rows[index + 1 :]]))
            with pytest.raises(LedgerDamaged):
                verify_export(exported)


@pytest.mark.parametrize("added", [0, 1, -1])
def test_an_export_that_goes_on_after_its_head_is_noticed(exported: Path, added: int) -> None:
    rows = exported.read_bytes().splitlines()
    exported.write_bytes(b"\n".join([*rows, rows[added]]) + b"\n")
    with pytest.raises(LedgerDamaged, match="goes on after its head"):
        verify_export(exported)


@pytest.mark.parametrize("cut", [1, 2, 3, 6])
def test_a_cut_export_is_noticed(exported: Path, cut: int) -> None:
    rows = exported.read_bytes().splitlines()
    exported.write_bytes(b"\n".join(rows[:-cut]) + b"\n")
    with pytest.raises(LedgerDamaged, match=r"tail was cut off|holds no entry"):
        verify_export(exported)


def test_an_export_with_an_older_head_is_noticed(world: World, exported: Path) -> None:
    rows = exported.read_bytes().splitlines()
    exported.write_bytes(b"\n".join([*rows[:-4], rows[-1]]) + b"\n")
    with pytest.raises(LedgerDamaged, match="ends at entry 8 but its head is of entry 11"):
        verify_export(exported)


def test_what_is_neither_is_said_to_be_neither(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("hello")
    with pytest.raises(LedgerDamaged, match="neither a ledger nor an export"):
        verify_export(tmp_path / "note")
    with pytest.raises(InvalidInput, match="cannot be read"):
        verify_export(tmp_path / "nothing")
    (tmp_path / "empty").write_text("lrdp-ledger-export-1\n")
    with pytest.raises(LedgerDamaged, match="holds no entry"):
        verify_export(tmp_path / "empty")


def test_an_export_is_never_overwritten(world: World, exported: Path) -> None:
    with world.open() as ledger, pytest.raises(InvalidInput, match="not overwritten"):
        write_export(ledger, exported)


def test_the_verifier_needs_the_base_install_only(exported: Path) -> None:
    """In a process that cannot import torch, Flower, Opacus or matplotlib."""
    code = (
        "import sys\n"
        "for name in ('torch', 'flwr', 'opacus', 'matplotlib', 'sklearn', 'dp_accounting'): sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from lrdp.ledger import verify_export\n"
        f"sys.exit(verify_export(Path({str(exported)!r})).books.seq)\n"
    )
    source = str(Path(__file__).parents[2] / "src")
    finished = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": source}, check=False)
    assert finished.returncode == 11
