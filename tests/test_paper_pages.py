"""What the pages of the evaluation say is what the results beside them say."""

import shutil
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (
    "paper.md",
    "accuracy.md",
    *(f"paper/{name}.md" for name in ("hospitals", "sensitivity", "noise", "memory", "models")),
)


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The pages and results in a folder of their own, and the script that fills them."""
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "results")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = import_module("paper_pages")
    monkeypatch.setattr(script, "FOLDER", tmp_path / "results" / "paper")
    return tmp_path / "results", script.main


def test_every_table_is_that_of_the_results(copied):
    folder, fill = copied
    fill()
    for page in PAGES:
        assert (folder / page).read_text() == (ROOT / "docs" / "results" / page).read_text()


def test_a_number_that_was_changed_by_hand_is_noticed(copied):
    folder, fill = copied
    page = folder / "paper.md"
    text = page.read_text()
    page.write_text(text.replace("98.15 ± 0.06", "99.15 ± 0.06", 1))
    fill()
    assert page.read_text() == text
    page.write_text(text.replace("<!-- gaps -->", ""))
    with pytest.raises(SystemExit, match="0 places for the table 'gaps'"):
        fill()


def test_no_page_names_a_folder_of_somebodys_machine():
    for path in (ROOT / "docs" / "results").rglob("*.json"):
        assert "/home/" not in path.read_text()
        assert "/root/" not in path.read_text()
