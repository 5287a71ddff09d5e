"""The registries in a server's folder: kept once, followed as the consortium linked them, and never overwritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from integrity.parties import CONSORTIUM, identity, registry_of
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity.registry import Registry, next_registry, sign_registry
from lrdp.integrity.shelf import RegistryShelf

MEMBERS = [identity(f"c{number:03d}") for number in range(4)]
FIRST = registry_of(MEMBERS)


def following(before: Registry, count: int, by=CONSORTIUM) -> Registry:
    return sign_registry(next_registry(before, [one.member for one in MEMBERS[:count]]), by)


SECOND = following(FIRST, 3)
THIRD = following(SECOND, 4)


@pytest.fixture
def shelf(tmp_path: Path) -> RegistryShelf:
    made = RegistryShelf(tmp_path / "server")
    for each in (FIRST, SECOND, THIRD):
        made.put(each)
    return made


def test_a_registry_is_put_once_and_the_same_one_again_changes_nothing(shelf: RegistryShelf) -> None:
    before = shelf.path(2).read_bytes()
    shelf.put(SECOND)
    assert shelf.path(2).read_bytes() == before


def test_another_registry_of_a_version_is_refused_and_the_first_one_stays(shelf: RegistryShelf) -> None:
    other = following(FIRST, 4)
    with pytest.raises(InvalidInput, match="another registry of version 2"):
        shelf.put(other)
    assert shelf.after(FIRST) == SECOND


def test_each_leads_to_the_next_and_the_last_one_to_none(shelf: RegistryShelf) -> None:
    assert [shelf.after(each) for each in (FIRST, SECOND, THIRD)] == [SECOND, THIRD, None]
    assert shelf.newest(FIRST) == shelf.newest(THIRD) == shelf.last() == THIRD


def test_those_before_are_found_as_far_as_they_are_there_and_are_the_ones_that_were_replaced(
    shelf: RegistryShelf,
) -> None:
    assert shelf.before(FIRST) == ()
    assert shelf.before(THIRD) == (FIRST, SECOND)
    assert shelf.before(following(following(FIRST, 4), 3)) == (), "the second one here is another"
    shelf.path(1).unlink()
    assert shelf.before(THIRD) == (SECOND,)


def test_a_lineage_is_the_same_from_wherever_it_is_asked_for(shelf: RegistryShelf) -> None:
    for each in (FIRST, SECOND, THIRD):
        assert shelf.lineage(each) == (FIRST, SECOND, THIRD)


def test_what_does_not_follow_is_refused(shelf: RegistryShelf) -> None:
    shelf.put(following(THIRD, 3, by=identity("another-consortium")))
    with pytest.raises(NotVerified, match="version 4 does not follow 3"):
        shelf.after(THIRD)
    shelf.path(2).write_text("{}")
    with pytest.raises(NotVerified, match="MALFORMED"):
        shelf.after(FIRST)


def test_the_last_one_is_that_of_the_highest_version_whatever_was_written_last(tmp_path: Path) -> None:
    shelf = RegistryShelf(tmp_path)
    for version in (10, 9, 2):
        shelf.put(sign_registry(replace(FIRST, version=version), CONSORTIUM))
    assert shelf.last().version == 10


def test_a_folder_without_a_registry_is_not_a_servers(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no registry"):
        RegistryShelf(tmp_path).last()


def test_a_folder_in_the_place_of_a_file_is_one_sentence(tmp_path: Path) -> None:
    shelf = RegistryShelf(tmp_path)
    shelf.path(1).mkdir()
    with pytest.raises(InvalidInput, match="cannot be read"):
        shelf.last()
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        RegistryShelf(tmp_path / "file" / "server").put(FIRST)


def test_a_file_that_is_no_registry_is_named(shelf: RegistryShelf) -> None:
    shelf.path(3).write_text("{}", encoding="ascii")
    for read in (shelf.last, lambda: shelf.after(SECOND), lambda: shelf.newest(FIRST)):
        with pytest.raises(NotVerified, match=r"registry-00003\.json is no registry"):
            read()
