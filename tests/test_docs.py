"""The pages: links lead somewhere, words are those of the code, and the site is built without a warning."""

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath

import pytest
from site_links import within_the_site

from commands.documented import named, problem_of, typed

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lrdp"
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "apps/**/*.md")
    for path in ROOT.glob(pattern)
    if "unfinished" not in path.parts
)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [target for target in LINK.findall(text) if not (page.parent / target).exists()] == []


@cache
def trees():
    return {
        path.relative_to(SOURCE).with_suffix("").as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in SOURCE.rglob("*.py")
    }


@cache
def classes():
    """Where each class of the package is, and each name that a module gives to a type."""
    homes = defaultdict(list)
    for home, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(home)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                homes[node.targets[0].id].append(home)
    return homes


def words():
    """The rows of the glossary: word and room."""
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+?) \|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    return [row for row in rows if row[0] not in ("word", "---")]


@pytest.mark.parametrize(("word", "room"), [row for row in words() if row[0].startswith("`")])
def test_every_word_of_the_glossary_is_a_class_of_its_room(word, room):
    assert [home for home in classes()[word.strip("`")] if home.startswith(room)], f"{word} is not in {room}"


def test_every_class_that_people_meet_first_is_a_word_of_the_glossary():
    offered = {name for room in ("lrdp", "lrdp.federation") for name in import_module(room).__all__}
    spoken_of = set(re.findall(r"`([A-Z]\w*[a-z]\w*)`", (ROOT / "docs" / "overview.md").read_text("utf-8")))
    met = {name for name in offered | spoken_of if name in classes() and name[0].isupper()}
    assert {"Ledger", "Terms", "Participant"} <= met
    assert met - {word.strip("`") for word, _ in words()} == set()


def test_the_glossary_has_each_word_once():
    found = [word for word, _ in words()]
    assert len(found) == len(set(found)) >= 30


@pytest.mark.parametrize("page", ["overview.md", "federation.md", "guarantees.md", "integrity.md", "ledger.md"])
def test_every_file_that_a_page_names_is_there(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", text))
    known = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "tests", "scripts", "apps", "examples", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in known)] == []


def test_every_test_that_a_page_names_is_there():
    there = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    said = [found for page in PAGES for found in re.findall(r"`(test_\w+)(…?)`", page.read_text(encoding="utf-8"))]
    named = {(name, bool(cut)) for name, cut in said} - {("test_a_crash_after_charging_still_counts", False)}
    assert len(named) > 20
    assert [
        name for name, cut in named if not any(name == one or (cut and one.startswith(name)) for one in there)
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_understood(page):
    if page.name == "CHANGELOG.md":
        pytest.skip("it also speaks of commands as they were")
    text = page.read_text(encoding="utf-8")
    pasted = {" ".join(words): problem_of(words, whole=True) for words in typed(text)}
    spoken = {" ".join(words): problem_of(words, whole=False) for words in named(text)}
    assert {line: problem for line, problem in (pasted | spoken).items() if problem} == {}


def scars(changelog):
    """Lines that begin like another, holes in a list, and parts of the newest version out of their order."""
    lines = changelog.splitlines()
    begun = [line.strip(" -")[:60] for line in lines if len(line) > 60]
    twice = [line for line in begun if begun.count(line) > 1]
    around = zip(lines, lines[1:], lines[2:], strict=False)
    stray = [line for entry, hole, line in around if not hole and {entry[:2], line[:2]} <= {"- ", "  "}]
    parts = re.findall(r"^### (\w+)$", changelog.split("\n## ")[1], re.MULTILINE)
    known = [part for part in ("Privacy", "Security", "Added", "Changed", "Fixed") if part in parts]
    return twice + stray + ([] if parts == known and parts[0] == "Privacy" else parts)


def test_the_changelog_says_each_thing_once_and_privacy_first():
    assert scars((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == []
    entry = "- " + "what was charged and never released " * 3
    assert scars(f"# Log\n\n## [Unreleased]\n\n### Privacy\n\n{entry}\n{entry}\n") != []
    assert scars(f"# Log\n\n## [Unreleased]\n\n### Privacy\n\n{entry}\n\n  and its end\n") == ["  and its end"]
    assert scars(f"# Log\n\n## [Unreleased]\n\n### Added\n\n{entry}\n\n### Privacy\n") == ["Added", "Privacy"]


def test_contributing_is_read_in_a_minute():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 60


def test_no_page_shows_a_verification_that_would_be_refused():
    """Without a pin anybody could have made the receipts, so the command is refused."""
    lines = [words for page in PAGES for words in typed(page.read_text(encoding="utf-8")) if words[0] == "verify"]
    assert len(lines) >= 2
    assert [words for words in lines if not {"--pin", "--unpinned"} & set(words)] == []


def test_what_pages_say_of_a_server_is_said_alike():
    """Its files are those of the table, and what it costs to write a model is what was measured."""
    pages = {name: (ROOT / "docs" / name).read_text("utf-8") for name in ("deployment.md", "federation.md")}
    table = re.findall(r"^\| `([a-z]+[-.][^`]+)` \|", pages["federation.md"], re.MULTILINE)
    named = set(re.findall(r"\bserver/([a-z]+\S*\.(?:txt|jsonl))", pages["deployment.md"]))
    assert len(named) == 2
    assert named <= {re.sub(r"-[A-Z][A-Z-]+", "-…", name) for name in table}
    measured = (ROOT / "docs" / "results" / "federation.md").read_text("utf-8")
    shares = set(re.findall(r"\b\d+\.\d%", pages["federation.md"].split("## Costs")[1]))
    assert len(shares) == 2
    assert shares <= set(re.findall(r"\*\*(\d+\.\d%)", measured))


def test_every_command_that_a_message_names_is_there():
    found: dict[str, str | None] = {}
    for path in SOURCE.rglob("*.py"):
        text = re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))
        found |= {" ".join(words): problem_of(words, whole=False) for words in named(text)}
    assert len(found) > 15
    assert {line: problem for line, problem in found.items() if problem} == {}


def test_control_lines_that_do_not_work_are_found():
    page = (
        "```bash\nlrdp verify server --pinn 3\n$ lrdp audit\nlrdp keys new\nlrdp init --folder a # b\n```\n`lrdp show`"
    )
    assert [bool(problem_of(words, whole=True)) for words in typed(page)] == [True, True, True, False]
    assert [bool(problem_of(words, whole=False)) for words in named(page)] == [True]


def test_a_link_that_leaves_the_site_is_words_there():
    """In the repository it leads to a file beside docs/, which the site does not have; any other dead link fails."""
    text = (
        "[a](../SECURITY.md#x), [b](../../experiments/noise.toml), [`CHANGELOG.md`](../../CHANGELOG.md), [c](../a.md)"
    )
    within = "[a](../SECURITY.md#x), b (`experiments/noise.toml`), `CHANGELOG.md`, [c](../a.md)"
    assert within_the_site(text, PurePosixPath("results")) == within


def test_the_site_is_built_without_a_warning(tmp_path):
    settings = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "overview/index.html", "reference/index.html"} <= pages
    front = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "fonts.googleapis.com" not in front, "nothing is fetched from anywhere"
    for room in ("accounting", "ledger", "training", "integrity", "federation", "codec"):
        page = (tmp_path / "site" / "reference" / room / "index.html").read_text(encoding="utf-8")
        shown = set(re.findall(r'id="lrdp\.([\w.]+)"', page))
        # A function that has its module's name is shown under both.
        names = [(f"{room}.{name}", f"{room}.{name}.{name}") for name in import_module(f"lrdp.{room}").__all__]
        assert [path for path, twice in names if not {path, twice} & shown] == []
        assert '<span class="gp">&gt;&gt;&gt; </span>' in page, "examples are shown as code"
