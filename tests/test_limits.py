"""A refusal says which field it is about, in words and by name."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from lrdp import limits
from lrdp.accounting import Adjacency, FixedSizeGaussian, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput

WRONG: dict[str, Callable[[], object]] = {
    "a type": lambda: limits.made_by("round", "3", int),
    "a family": lambda: limits.derived_from("round", "3", int),
    "nothing positive": lambda: limits.positive("round", 0.0, "why"),
    "outside": lambda: limits.between("round", 3.0, 0.0, 1.0, "why"),
    "no share": lambda: limits.open_unit("round", 1.0, "why"),
    "no order": lambda: limits.above_one("round", 1.0, "why"),
    "no bound": lambda: limits.bound("round", -1.0),
    "no whole number": lambda: limits.whole("round", 2.5, 0, "why"),  # type: ignore[arg-type]
    "too small": lambda: limits.whole("round", -1, 0, "why"),
    "too large": lambda: limits.whole("round", 2**63, 0, "why"),
    "no number": lambda: limits.positive("round", "3", "why"),  # type: ignore[arg-type]
    "no double": lambda: limits.positive("round", 2**53 + 1, "why"),
}


@pytest.mark.parametrize("name", WRONG)
def test_every_limit_names_its_field(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        WRONG[name]()
    assert caught.value.field == "round"
    assert str(caught.value).startswith("round must ")


def test_a_rule_between_two_fields_names_one() -> None:
    sizes: dict[str, Any] = {"dataset_size": 100, "noise_multiplier": 1.0}
    with pytest.raises(InvalidInput) as caught:
        FixedSizeGaussian(batch_size=128, **sizes)
    assert caught.value.field == "batch_size"
    with pytest.raises(InvalidInput) as caught:
        TruncatedPoissonGaussian(batch_size=32, cap=31, **sizes)
    assert caught.value.field == "cap"


def test_an_error_without_a_field_says_so_and_survives_a_process_border() -> None:
    assert InvalidInput("nothing in particular.").field is None
    again = pickle.loads(pickle.dumps(InvalidInput("cap is wrong.", field="cap")))
    assert (str(again), again.field) == ("cap is wrong.", "cap")


def test_an_adjacency_is_named_as_it_is_called() -> None:
    with pytest.raises(InvalidInput) as caught:
        limits.made_by("adjacency", "add-remove", Adjacency)
    assert caught.value.field == "adjacency"
