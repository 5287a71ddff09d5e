"""What an image's build is given of a checkout: the files that its Containerfile copies and its ignore list lets in."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def copied(containerfile: str) -> Iterator[tuple[list[str], str]]:
    """Each COPY from the checkout: its sources, and where they go."""
    for line in re.findall(r"^COPY (?!--from)(.+)$", containerfile, re.MULTILINE):
        *sources, target = line.split()
        yield sources, target


def let_in(path: PurePosixPath, ignored: str) -> bool:
    """Whether an ignore list lets a file into the build: of the lines that speak of it or a folder of its, the last."""
    within = True
    for line in ignored.splitlines():
        pattern = line.removeprefix("!")
        if line and line[0] != "#" and any(_speaks_of(pattern, place) for place in (path, *path.parents)):
            within = line[0] == "!"
    return within


def _speaks_of(pattern: str, place: PurePosixPath) -> bool:
    parts = re.split(r"(\*\*/|\*)", pattern)
    known = {"**/": "(?:.*/)?", "*": "[^/]+"}
    return re.fullmatch("".join(known.get(part, re.escape(part)) for part in parts), str(place)) is not None


def copy_for_build(source: Path, target: Path, containerfile: str, ignored: str) -> None:
    """Fill a new folder as the build's own would be."""
    target.mkdir()
    for names, place in copied(containerfile):
        for name in names:
            _copy(source, PurePosixPath(name), target / place / name if place == "./" else target / place, ignored)


def _copy(source: Path, name: PurePosixPath, target: Path, ignored: str) -> None:
    found = source / name
    for path in [found] if found.is_file() else sorted(found.rglob("*")):
        if path.is_file() and let_in(PurePosixPath(path.relative_to(source)), ignored):
            made = target / path.relative_to(found)
            made.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, made)
