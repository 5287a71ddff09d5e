"""Command lines as pages and messages show them, and whether the app would understand them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from lrdp.cli import app

_BLOCK = re.compile(r"```(?:bash|console|sh|text)?\n(.*?)```|((?:^ {4,}\S.*\n)+)", re.DOTALL | re.MULTILINE)
_TYPED = re.compile(r"^\s*(?:\$ |\S+=\$\()?lrdp ([^\n]*)", re.MULTILINE)
_NAMED = re.compile(r"`lrdp ([a-z][^`]*)`")
_NOT_UNDERSTOOD: Any = typer.BadParameter.mro()[2]
"""Every error of usage."""
_ENDS = {"|", ">", ">>", "#", "&&", ";"}
"""Where a shell, or a reader, sees another word than lrdp's."""


def typed(page: str) -> Iterator[list[str]]:
    """The lines of a page that a reader would paste."""
    for fenced, indented in _BLOCK.findall(page):
        for line in _TYPED.findall(re.sub(r"\\\n\s*", " ", fenced or indented)):
            yield _words(line.replace(" --json)", " --json"))


def named(text: str) -> Iterator[list[str]]:
    """The commands that a sentence speaks of, with as many of their words as it says."""
    for line in _NAMED.findall(" ".join(text.split())):
        yield _words(re.sub(r"[\[\]]", " ", line))


def _words(line: str) -> list[str]:
    words = shlex.split(line, comments=True)
    end = next((place for place, word in enumerate(words) if word in _ENDS), len(words))
    return words[:end]


def problem_of(words: list[str], *, whole: bool) -> str | None:
    """Why the app would not understand these words; a part of a line need not be complete."""
    command, rest = _found(words)
    if command is None:
        return f"there is no command {' '.join(words[:2])}"
    if not whole:
        known = {option for each in getattr(command, "params", []) for option in each.opts} | {"--help"}
        unknown = [word for word in rest if word.startswith("-") and word not in known]
        return f"it has no {unknown[0]}" if unknown else None
    try:
        command.make_context("lrdp", rest).close()
    except _NOT_UNDERSTOOD as problem:
        return str(problem.format_message())
    return None


@cache
def commands() -> Any:
    """The whole app: to build it takes longer than to ask it."""
    return typer.main.get_command(app)


def _found(words: list[str]) -> tuple[Any, list[str]]:
    command, rest = commands(), list(words)
    while rest and hasattr(command, "commands"):
        if rest[0].startswith("-") or not rest[0].isascii():
            break
        command = command.commands.get(rest.pop(0))
    return command, [word for word in rest if word != "…"] if hasattr(command, "commands") else rest
