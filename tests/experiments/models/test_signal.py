"""Noise beside signal, against noise that is really added up; and the paper's runs, counted step by step."""

from __future__ import annotations

import numpy as np
import pytest

from lrdp.errors import InvalidInput
from lrdp.experiments.models.signal import PaperRun, noise_in_clip_norms

CIFAR10 = PaperRun(clients=10, records=50_000, batch_size=128, rounds=50, local_epochs=5)


def test_it_is_the_length_of_the_noise_that_is_left_of_all_clients():
    """Each adds noise to its sum, divides by its batch size, and the server takes the mean."""
    source, clip, sigma, size, batch, clients = np.random.default_rng(3), 0.7, 2.3, 40_000, 17, 6
    each = source.normal(scale=sigma * clip, size=(clients, size)) / batch
    found = np.linalg.norm(each.mean(0)) / clip
    assert found == pytest.approx(noise_in_clip_norms(sigma, size, batch, clients), rel=0.02)
    assert found != pytest.approx(noise_in_clip_norms(sigma, size, batch, 1), rel=0.02)


def test_the_papers_run_on_cifar10_has_a_step_for_each_batch_of_each_epoch():
    steps = sum(1 for _ in range(50) for _ in range(5) for _ in range(0, 5000, 128))
    assert CIFAR10.steps == steps == 10_000


def test_a_run_without_a_round_is_refused():
    with pytest.raises(InvalidInput, match="rounds"):
        PaperRun(clients=10, records=50_000, batch_size=128, rounds=0, local_epochs=5)
