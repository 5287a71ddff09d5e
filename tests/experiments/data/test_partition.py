"""Shares of equal size: who gets what follows its law."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from lrdp.errors import InvalidInput
from lrdp.experiments.data import dealt, dirichlet

LABELS = torch.from_numpy(np.random.default_rng(1).choice(5, 1003, p=[0.4, 0.3, 0.15, 0.1, 0.05]))


@pytest.mark.parametrize("shares", [dealt(LABELS, 10, 3), dirichlet(LABELS, 10, 0.3, 3)])
def test_every_client_has_equally_many_and_no_record_goes_to_two(shares):
    assert [len(share) for share in shares] == [100] * 10
    together = np.concatenate(shares)
    assert len(np.unique(together)) == 1000
    assert together.min() >= 0
    assert together.max() < 1003


@pytest.mark.parametrize("deal", [dealt, lambda labels, clients, seed: dirichlet(labels, clients, 0.3, seed)])
def test_the_seed_decides(deal):
    same, again, other = deal(LABELS, 7, 1), deal(LABELS, 7, 1), deal(LABELS, 7, 2)
    assert all(np.array_equal(a, b) for a, b in zip(same, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(same, other, strict=True))


def places(deal):
    """How often record 17 goes to each of four clients, or to none, in 2,000 deals of 21 records."""
    counts = np.zeros(5)
    for seed in range(2000):
        holder = [17 in share for share in deal(seed)]
        counts[holder.index(True) if any(holder) else 4] += 1
    return chisquare(counts, 2000 * np.array([5, 5, 5, 5, 1]) / 21).pvalue


def test_each_record_goes_to_each_client_equally_often():
    assert places(lambda seed: dealt(torch.zeros(21), 4, seed)) > 1e-3


def test_a_deal_without_shuffling_is_told_apart():
    assert places(lambda _: np.arange(20).reshape(4, 5)) < 1e-9


def spread(shares):
    """The mean over clients of the largest class's share."""
    return np.mean([np.bincount(LABELS[share], minlength=5).max() / len(share) for share in shares])


def test_the_smaller_alpha_the_fewer_classes_has_a_client():
    found = [np.mean([spread(dirichlet(LABELS, 10, alpha, seed)) for seed in range(20)]) for alpha in (0.1, 1, 1000)]
    assert found[0] > found[1] + 0.05 > found[2] + 0.1
    assert found[2] == pytest.approx(np.mean([spread(dealt(LABELS, 10, seed)) for seed in range(20)]), abs=0.02)


def ones_of_the_first(alpha):
    """How many of four records of the first of 250 clients are of class one, in 600 splits of two equal classes."""
    labels = torch.arange(1000) % 2
    return np.bincount([int(labels[dirichlet(labels, 250, alpha, seed)[0]].sum()) for seed in range(600)], minlength=5)


@pytest.mark.slow
def test_mixtures_follow_the_dirichlet_law():
    """Of a uniform mixture the number is uniform too, but for the last records, which go as they come."""
    assert chisquare(ones_of_the_first(1.0)).pvalue > 1e-3
    assert chisquare(ones_of_the_first(20.0)).pvalue < 1e-9


@pytest.mark.parametrize("clients", [0, 1004])
def test_impossible_numbers_of_clients_are_refused(clients):
    with pytest.raises(InvalidInput, match="clients"):
        dealt(LABELS, clients, 0)


@pytest.mark.parametrize("alpha", [0.0, float("nan"), -1.0])
def test_an_impossible_alpha_is_refused(alpha):
    with pytest.raises(InvalidInput, match="alpha"):
        dirichlet(LABELS, 3, alpha, 0)
