"""Marked rows stand out: each holds the value and no other does, token ids where they become numbers."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from lrdp.training.marking import filled, marked

OWN = torch.tensor([False, True, False])


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_marked_rows_hold_the_value_and_all_others_what_they_held(value):
    batch: dict[str, Any] = {"pixels": torch.randn(3, 2, 5), "pair": (torch.randn(3), torch.arange(3))}
    found = filled(batch, OWN, value)
    expected = torch.tensor(value).expand(2, 5)
    assert torch.equal(found["pixels"][[0, 2]], batch["pixels"][[0, 2]])
    torch.testing.assert_close(found["pixels"][1], expected, equal_nan=True, rtol=0, atol=0)
    assert (found["pair"][0] != batch["pair"][0]).tolist() == OWN.tolist()
    assert found["pair"][1].tolist() == [0, 1, 2]  # a whole number cannot be huge
    assert not (batch["pixels"] == value).any()  # the batch itself stays


def test_what_is_looked_up_by_number_is_marked_until_the_end_and_no_longer():
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2))
    tokens = torch.tensor([3, 3, 6])
    before = model(tokens)
    with marked(model, OWN, math.nan):
        within = model(tokens)
    assert within.isnan().all(dim=1).tolist() == OWN.tolist()
    assert torch.equal(within[[0, 2]], before[[0, 2]])
    assert torch.equal(model(tokens), before)


def test_the_marks_are_taken_off_where_a_pass_fails():
    model = nn.Embedding(7, 4)
    with pytest.raises(IndexError), marked(model, OWN, math.nan):
        model(torch.tensor([3, 3, 7]))
    assert model(torch.tensor([3, 3, 6])).isfinite().all()
