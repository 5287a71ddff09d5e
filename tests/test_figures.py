"""Figures know their side, and no other number is shortened before it is shown."""

from __future__ import annotations

import ast
import json
import math
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lrdp
from lrdp.figures import AtLeast, AtMost, left

SOURCE = Path(lrdp.__file__).parent
NUMBERS = st.floats(min_value=1e-290, max_value=1e290)
FORMS = st.sampled_from([".1f", ".4f", ">12.3f", ".6g", "g", ".3g", "", ".1e", ".17g"])
SHORTENED = re.compile(r"[eEfFgG%]$")


@given(NUMBERS, FORMS)
def test_what_is_printed_reads_back_on_the_safe_side(number: float, form: str) -> None:
    assert float(format(AtMost(number), form)) >= number >= float(format(AtLeast(number), form))


@given(NUMBERS)
def test_it_stays_within_one_unit_of_the_last_digit(number: float) -> None:
    for kind in (AtMost, AtLeast):
        assert abs(Fraction(float(f"{kind(number):.5e}")) / Fraction(number) - 1) <= Fraction("1.0000001e-5")


@given(st.floats(min_value=0, max_value=1e9), st.floats(min_value=0, max_value=1e9))
def test_what_is_left_is_never_more_than_the_difference(budget: float, spent: float) -> None:
    rest, exact = left(budget, spent), max(Fraction(0), Fraction(budget) - Fraction(spent))
    assert Fraction(rest) <= exact < max(Fraction(math.nextafter(rest, math.inf)), Fraction(1, 10**300))


def test_a_number_that_is_short_enough_stays_as_it_is() -> None:
    assert [str(kind(number)) for kind in (AtMost, AtLeast) for number in (8.0, 0.1, 1e-5)] == ["8", "0.1", "1e-05"] * 2


def test_little_is_never_shown_as_nothing() -> None:
    assert (f"{AtMost(1e-300):.4f}", f"{AtMost(0.0):.4f}", f"{AtLeast(1e-5):.4f}") == ("0.0001", "0.0000", "0.0000")


def test_what_is_not_known_is_infinite() -> None:
    assert f"{AtMost(math.nan):.4f} {AtMost(math.inf)} {AtLeast(math.nan):.1f}" == "inf inf -inf"
    assert [left(8.0, spent) for spent in (math.nan, math.inf, 8.0, 9.0)] == [0.0] * 4
    assert left(math.inf, 1.0) == left(math.nan, 1.0) == 0.0


def test_a_float_from_exact_arithmetic_is_the_next_on_the_safe_side() -> None:
    third = Decimal(1) / Decimal(3)
    assert Fraction(AtLeast.of(third)) < Fraction(third) < Fraction(AtMost.of(third))
    assert float(AtLeast.of(Decimal("0.5"))) == float(AtMost.of(Decimal("0.5"))) == 0.5


def test_json_has_every_digit() -> None:
    assert json.loads(json.dumps({"a": AtMost(0.1 + 0.2), "b": AtLeast(1 / 3)})) == {"a": 0.1 + 0.2, "b": 1 / 3}


def unsafe(code: str) -> list[int]:
    """Lines on which a number is shortened that does not know its side."""
    formatted = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FormattedValue))
    return [
        node.lineno
        for node in formatted
        if isinstance(node.format_spec, ast.JoinedStr)
        and SHORTENED.search("".join(str(getattr(part, "value", "")) for part in node.format_spec.values))
        and not (isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("AtMost", "AtLeast"))
    ] + [number for number, line in enumerate(code.splitlines(), 1) if re.search(r"%[-+ #0]?\d*\.\d+[efgEFG]", line)]


def shown_from() -> list[Path]:
    """The package, and what else prints figures for people."""
    folders = (SOURCE, *(Path(__file__).parents[1] / name for name in ("scripts", "apps", "examples")))
    return sorted(path for folder in folders for path in folder.rglob("*.py") if not _estimates(path))


def _estimates(path: Path) -> bool:
    """Tables and pictures of studies: means with their intervals, rounded to the nearest; JSON has them whole."""
    return path.parent.name == "paper_tables" or (
        "experiments" in path.parts and path.name in ("drawing.py", "table.py", "tables.py")
    )


@pytest.mark.parametrize("path", shown_from(), ids=lambda path: "/".join(path.parts[-3:]))
def test_no_number_is_shortened_without_a_side(path: Path) -> None:
    assert unsafe(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "code", ['f"{epsilon:.4f}"', 'f"{epsilon:g}"', 'f"{share:.0%}"', 'f"{epsilon:.{places}f}"', 'log("%.2f", epsilon)']
)
def test_control_a_bare_format_is_found(code: str) -> None:
    assert unsafe(code) == [1]
    assert unsafe('f"{AtMost(epsilon):.4f} {AtLeast(rest):.{places}f} {name:<24} {count:,} {word:>8}"') == []
