"""Public affine maps against numpy's own decomposition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lrdp.errors import InvalidInput
from lrdp.experiments.data.conditioning import applied, centred, whitened
from lrdp.experiments.data.conditions import compared

PUBLIC = torch.randn(300, 12, generator=torch.Generator().manual_seed(0)) @ torch.diag(torch.arange(1.0, 13.0)) + 5
ROWS = torch.randn(40, 12, generator=torch.Generator().manual_seed(1)) + 5


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_centred_is_less_the_public_mean():
    expected = unit(ROWS.numpy() - PUBLIC.numpy().mean(0))
    np.testing.assert_allclose(centred(PUBLIC)(ROWS), expected, atol=1e-6)


def test_whitened_public_rows_are_white():
    mean = PUBLIC.numpy().astype(float).mean(0)
    _, values, directions = np.linalg.svd(PUBLIC.numpy().astype(float) - mean, full_matrices=False)
    turned = directions[:5].T / values[:5] * np.sqrt(len(PUBLIC))
    expected, found = unit((ROWS.numpy() - mean) @ turned), whitened(PUBLIC, 5)(ROWS).numpy()
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-5)
    signs = np.sign((found * expected).sum(0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-5)


def test_whitening_is_the_same_each_time():
    assert torch.equal(whitened(PUBLIC, 5)(ROWS), whitened(PUBLIC.clone(), 5)(ROWS))


@pytest.mark.parametrize("components", [0, 13])
def test_more_directions_than_there_are_are_refused(components):
    with pytest.raises(InvalidInput, match="components"):
        whitened(PUBLIC, components)


def test_each_row_for_itself():
    condition = whitened(PUBLIC, 5)
    torch.testing.assert_close(applied(condition, ROWS)[7:8], applied(condition, ROWS[7:8]), atol=1e-3, rtol=0)


def test_pairs_are_compared_as_written():
    texts = torch.randn(3, 2, 2, 4, generator=torch.Generator().manual_seed(2))
    for row, found in zip(texts.numpy(), compared(texts).numpy(), strict=True):
        u, v = (row[side, 0] / np.linalg.norm(row[side, 0]) for side in range(2))
        np.testing.assert_allclose(found, [*abs(u - v), *(u * v), u @ v], atol=1e-6)
