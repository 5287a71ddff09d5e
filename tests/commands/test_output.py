"""What commands print: lines for people, one object for programs, and nothing where it would be no JSON."""

import json
import math

import pytest

from lrdp.commands import output
from lrdp.errors import InvalidInput


def test_people_get_a_line_for_each_figure_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_record({"rounds_left": 3, "order": None, "members": ["a", "b"], "counts": {"c": 1}}, as_json=False)
    assert capsys.readouterr().out == "rounds left  3\nmembers      a, b\ncounts       c 1\n"


def test_programs_get_one_object_with_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"rounds_left": 3, "order": None, "epsilon": 0.1 + 0.2, "client": "Zoë"}
    output.print_record(record, as_json=True)
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == record


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_json_cannot_say_is_refused_and_nothing_is_printed(
    capsys: pytest.CaptureFixture[str], value: float
) -> None:
    with pytest.raises(InvalidInput, match="nothing was printed"):
        output.print_json({"epsilon": value})
    assert capsys.readouterr().out == ""


def test_where_nobody_watches_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress() as bar:
        bar.add_task("work", total=2)
        bar.console.print("round 1 [red]")
    assert capsys.readouterr() == ("", "round 1 [red]\n")
