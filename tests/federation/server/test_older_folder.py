"""A server's folder that is older than what its clients verified: nobody is led back, and the run says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from federation.worlds import World, world
from lrdp.federation import RunResult
from lrdp.federation.server.chronicle import Chronicle
from lrdp.federation.server.confirming import overtaken
from lrdp.federation.wire.questions import Here

from .test_confirming import both, charges


@both
def test_a_server_restored_from_an_older_backup_ends_and_says_why_and_goes_on_with_its_newest_folder(
    tmp_path: Path, start: Callable[[World, int], RunResult]
) -> None:
    """Its clients have verified a round that it does not know, and never go back."""
    place, server = world(tmp_path, 3), tmp_path / "consortium" / "server"
    start(place, 2)
    shutil.copytree(server, tmp_path / "older")
    start(place, 3)
    (newest,) = server.glob("model-*-00003.safetensors")
    shutil.copytree(server, tmp_path / "newest")
    shutil.copytree(tmp_path / "older", server, dirs_exist_ok=True)
    before, attempts = charges(place), len(place.reports)
    result = start(place, 5)
    assert result.reason.startswith("hospital-0, hospital-1, hospital-2 verified up to 3 rounds of this session, and")
    assert (charges(place), len(place.reports)) == (before, attempts)
    assert newest.exists(), "it may be all that is left of what the budget paid for"
    shutil.rmtree(server)
    shutil.copytree(tmp_path / "newest", server)
    assert start(place, 4).reason == ""
    assert place.audit().rounds == 4


def test_one_client_s_word_that_it_is_further_stops_nobody_else(tmp_path: Path) -> None:
    """Another folder's server has led it on, or it makes that up."""
    names = ["a", "b", "c", "d"]
    chronicle = Chronicle()
    chronicle.greet(Here(name="d", round=7, tip=bytes([1]) * 32), bytes(32))
    assert overtaken(chronicle, names, 3) == ""
    assert overtaken(chronicle, names[:3], 3) == ""
    assert overtaken(chronicle, names[1:], 4) == "", "they are too few in any case"
    assert overtaken(chronicle, names[1:], 3).startswith("d verified up to 7 rounds of this session, and")
    chronicle.greet(Here(name="d", round=0, tip=bytes(32)), bytes(32))
    assert overtaken(chronicle, names[1:], 3) == ""
