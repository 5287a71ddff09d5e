"""Options that make a step: ``--mechanism``, and one option for each number that some mechanism has.

They are read from ``MECHANISMS``, so a mechanism that is a line there can be asked for here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from lrdp.accounting import MECHANISMS, FixedSizeGaussian, Mechanism
from lrdp.errors import InvalidInput


def choices(title: str, names: Iterable[str]) -> Any:
    """An enumeration of these names, as typer offers one."""
    return StrEnum(title, [(name, name) for name in names])


MechanismName: Final = choices("MechanismName", MECHANISMS)
"""``--mechanism``: all that a ledger can hold."""

_KNOWN: Final = {
    "dataset_size": (["-n"], "The client's number of records: a public bound."),
    "batch_size": (["-b"], "Records per step (expected, for Poisson)."),
    "noise_multiplier": ([], "σ: noise on the sum of clipped gradients, over the clip norm."),
    "cap": ([], "Hard cap of a truncated Poisson batch: the rows held in memory."),
}
_NUMBERS: Final = {number: kind for each in MECHANISMS.values() for number, kind in each.numbers.items()}
_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY


def takes_step(**fixed: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameter ``step`` is given as options: all numbers of its mechanism, except those ``fixed``."""
    asked = [number for number in {**_KNOWN, **_NUMBERS} if number in _NUMBERS and number not in fixed]

    def offer(command: Callable[..., None]) -> Callable[..., None]:
        given = inspect.signature(command, eval_str=True).parameters
        others = [each.replace(kind=_KEYWORD) for name, each in given.items() if name != "step"]
        offered = [*_options(asked), *others]

        def run(mechanism: str, **options: Any) -> None:
            numbers = {number: options.pop(number) for number in asked}
            command(step=step_of(str(mechanism), numbers | fixed), **options)

        run.__doc__, run.__name__, run.__module__ = command.__doc__, command.__name__, command.__module__
        run.__annotations__ = {each.name: each.annotation for each in offered}
        run.__signature__ = inspect.Signature(offered)  # type: ignore[attr-defined]
        return run

    return offer


def step_of(name: str, numbers: dict[str, Any]) -> Mechanism:
    """The step with these numbers; refused if one is missing that its kind has, or one is given that it lacks."""
    kind = MECHANISMS[name]
    for number, value in numbers.items():
        option = _option(number)
        if value is None and number in kind.numbers:
            raise InvalidInput(f"{option} is required with --mechanism {name}.", field=number)
        if value is not None and number not in kind.numbers:
            words = f"{option}={value} is only for --mechanism {_owners(number)}: {name} has no {number}."
            raise InvalidInput(words, field=number)
    return kind(**{number: numbers[number] for number in kind.numbers})


def _options(asked: list[str]) -> list[inspect.Parameter]:
    """Keyword-only, so that those with a default may come first."""
    found = [_offered(number) for number in asked]
    words, usual = typer.Option(help="How batches are drawn."), MechanismName(FixedSizeGaussian.name)
    return [*found, inspect.Parameter("mechanism", _KEYWORD, default=usual, annotation=Annotated[MechanismName, words])]


def _offered(number: str) -> inspect.Parameter:
    short, help_text = _KNOWN.get(number, ([], f"Of {_owners(number)}."))
    option = typer.Option(_option(number), *short, help=help_text)
    kind: Any = _NUMBERS[number]
    if all(number in each.numbers for each in MECHANISMS.values()):
        return inspect.Parameter(number, _KEYWORD, annotation=Annotated[kind, option])
    return inspect.Parameter(number, _KEYWORD, default=None, annotation=Annotated[kind | None, option])


def _owners(number: str) -> str:
    return " and ".join(each.name for each in MECHANISMS.values() if number in each.numbers)


def _option(number: str) -> str:
    return f"--{number.replace('_', '-')}"
