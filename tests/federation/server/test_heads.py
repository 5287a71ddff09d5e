"""The heads of the members' ledgers: what a server keeps of them, and that it finds a ledger that was rolled back."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from federation.worlds import TRAINING, World, hospitals, world
from integrity.parties import federation
from lrdp.federation.server.archive import Archive
from lrdp.federation.wire.forms import MOST_HEADS
from lrdp.ledger import ChainPoint, Head, Home, open_budget

NAME = "hospital-1"


def with_another_ledger(folder: Path) -> tuple[World, Home]:
    """Six rounds were paid from the first ledger, and another was opened since, for other records."""
    place = world(folder, 4, trainings=dict.fromkeys(hospitals(4), replace(TRAINING, rounds=60)))
    place.run(6)
    home = Home(folder=place.consortium.client(NAME).folder)
    for path in (home.ledger, home.key, home.administrator):
        path.rename(path.with_name(f"{path.name}.old"))
    open_budget(home, plan_rounds=60).close()
    return place, home


def test_a_ledger_that_is_rolled_back_is_found_out_however_long_the_one_before_it_was(tmp_path: Path) -> None:
    place, home = with_another_ledger(tmp_path)
    first_night = home.ledger.read_bytes()
    place.run(2, folder=place.another_folder())
    home.ledger.write_bytes(first_night)
    place.run(2, folder=place.another_folder())
    assert place.books(NAME).suspended is not None
    assert not place.books(NAME).charges.steps, "nothing was released from it"


def test_another_ledger_takes_part_and_nobody_takes_it_for_a_rollback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The control: the heads of the first one, which lie higher, say nothing of the second, but that there are two."""
    place, _ = with_another_ledger(tmp_path)
    assert "another ledger" not in caplog.text
    place.run(2, folder=place.another_folder())
    assert caplog.text.count(f"{NAME} signs heads of another ledger than before") == 1
    place.run(2, folder=place.another_folder())
    assert place.books(NAME).suspended is None
    assert all(NAME in report.participants for report in place.reports)


def head(ledger: str, seq: int, generation: int = 0) -> str:
    points = (ChainPoint(seq=seq, digest="ab" * 32, steps=seq),)
    return Head(ledger=ledger, generation=generation, points=points, signature="cd" * 64).encode()


def kept(folder: Path, heads: Sequence[str]) -> tuple[str, ...]:
    archive = Archive(folder, federation(3, size=5).session)
    for one in heads:
        archive.keep_head(NAME, one)
    archive.save_heads()
    return Archive(folder, federation(3, size=5).session).heads_of(NAME)


def test_the_highest_head_of_each_ledger_is_kept(tmp_path: Path) -> None:
    a, b = "aa" * 16, "bb" * 16
    given = [head(a, 3), head(a, 9), head(b, 1), head(a, 4), head(b, 2), head(b, 1, generation=1), "no head"]
    assert kept(tmp_path, given) == (head(a, 9), head(b, 1, generation=1))


def test_no_more_heads_are_kept_than_a_message_carries(tmp_path: Path) -> None:
    """The oldest goes; a member that makes up ledgers harms nobody but itself."""
    given = [head(f"{ledger:032x}", 5) for ledger in range(MOST_HEADS + 4)]
    assert kept(tmp_path, given) == tuple(given[4:])


def test_the_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    earlier = head("aa" * 16, 7)
    (tmp_path / "heads.json").write_text(json.dumps({NAME: earlier}))
    assert kept(tmp_path, [head("aa" * 16, 6)]) == (earlier,)
