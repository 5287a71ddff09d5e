"""Files that a command is told to read or write: what is wrong with one is a sentence, and what was there stays."""

import os
from pathlib import Path

import pytest

from lrdp.commands import paths
from lrdp.errors import InvalidInput


def test_a_file_is_read_within_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"abc\xff")
    assert paths.read_text(path) == "abc\ufffd"
    with pytest.raises(InvalidInput, match=r"text cannot be read: it has 4 bytes, at most 3 are read\."):
        paths.read_text(path, 3)
    with pytest.raises(InvalidInput, match="nowhere cannot be read: No such file or directory"):
        paths.read_text(tmp_path / "nowhere")


def test_what_is_there_is_replaced_whole_or_stays(tmp_path: Path) -> None:
    path = tmp_path / "text"
    paths.write_new(path, b"first")
    with pytest.raises(InvalidInput, match="it is not overwritten"):
        paths.write_new(path, b"second")
    assert path.read_bytes() == b"first"
    paths.replace(path, b"first, and more")
    assert path.read_bytes() == b"first, and more"
    with pytest.raises(InvalidInput, match=r"below cannot be written: .*; it is as it was"):
        paths.replace(path / "below", b"third")
    assert [each.name for each in tmp_path.iterdir()] == ["text"]


def test_what_is_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    ledger, pipe, circle = tmp_path / "ledger.db", tmp_path / "pipe", tmp_path / "circle"
    ledger.write_bytes(b"SQLite format 3")
    os.mkfifo(pipe)
    circle.symlink_to(circle)
    for path, words in {ledger: "of another kind", pipe: "not a regular file", circle: "symbolic links"}.items():
        with pytest.raises(InvalidInput, match=f"cannot be written: .*{words}.*; it is as it was"):
            paths.replace(path, b"<!doctype html>")
    assert ledger.read_bytes() == b"SQLite format 3"
    assert pipe.is_fifo()
    assert circle.is_symlink()
    link = tmp_path / "page.html"
    link.symlink_to(tmp_path / "real.html")
    paths.replace(link, b"<!doctype html>1")
    paths.replace(link, b"<!doctype html>2")
    assert link.is_symlink()
    assert (tmp_path / "real.html").read_bytes() == b"<!doctype html>2"
