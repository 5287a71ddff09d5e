"""`--set KEY=VALUE`, as Flower reads a node's settings."""

import pytest

from lrdp.commands.settings import read_settings
from lrdp.errors import InvalidInput


def test_values_are_numbers_truths_and_text_with_or_without_quotes() -> None:
    given = ["seed=3", "rate=0.5", "shuffle=true", 'name="a b"', "path=/data/a=b.csv", "empty=", "seed=4"]
    expected = {"seed": 4, "rate": 0.5, "shuffle": True, "name": "a b", "path": "/data/a=b.csv", "empty": ""}
    assert read_settings(given) == expected


@pytest.mark.parametrize("given", ["seed", "=3", ""])
def test_what_is_no_setting_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="--set takes KEY=VALUE, got"):
        read_settings([given])
