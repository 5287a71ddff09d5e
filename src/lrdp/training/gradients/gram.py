"""Lengths of sums of outer products from Gram matrices: ‖Σ_t l_t ⊗ r_t‖² = ⟨l lᵀ, r rᵀ⟩, never below the truth."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lrdp.training.clipping import WIDE
from lrdp.training.rounding import inflation, unit


def lengths(grams: Iterable[tuple[Tensor, Tensor]], products: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Squares and reaches, as in ``Measured``, from pairs of Gram matrices [some rows, terms, terms].

    ``products`` says how many products each of the matrices' elements adds up. What is needed from a pair is taken
    before the next is asked for, so all may come in the same two buffers; ``left`` is overwritten.

    Guarantees: never below the truth, even where terms cancel, products underflow or denormals are flushed
    (docs/training.md). A computed square may well lie below zero: it counts as zero, and the allowance is added.
    """
    found = [_taken(left, right) for left, right in grams]
    squared, norms, inner = (torch.cat(parts, -1) for parts in zip(*found, strict=True))
    terms, dtype = squared.shape[1], squared.dtype
    u, tiny = unit(dtype), torch.finfo(dtype).tiny
    length = sum(products) + terms + 4
    counts = torch.tensor(products, dtype=WIDE, device=squared.device)[:, None]
    terms_squared = squared.to(WIDE).add_(counts[:, None], alpha=tiny)
    energies = terms_squared.sum(1)
    spread = terms_squared.prod(0).sqrt_().sum(0).square_()
    spectral = _spectral(norms, terms) + energies * (length * u)
    apart = (energies * spectral.flip(0) * counts).sum(0) + spectral.prod(0) * (terms + 4)
    rounding = torch.minimum(spread * length, apart) * u
    underflow = (energies.flip(0) * counts).sum(0).add_(terms).mul_(4.0 * terms * tiny)
    reaches = torch.minimum((spectral * energies.flip(0)).amin(0), spread)
    above = inflation(length, dtype)
    return (inner.clamp_(min=0.0) + rounding + underflow) * above, reaches * above


def _taken(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of some rows: each term's squares [2, terms, rows], both matrices' norms [2, rows], and their inner product."""
    squared = torch.stack([gram.diagonal(dim1=1, dim2=2).t() for gram in (left, right)])
    norms = torch.stack([torch.linalg.vector_norm(gram.flatten(1), dim=1) for gram in (left, right)])
    return squared, norms, left.mul_(right).sum(2).to(WIDE).sum(1)


def _spectral(norms: Tensor, terms: int) -> Tensor:
    """The Frobenius norms of two Gram matrices, which bound the squared spectral norms of all left and all right terms.

    Those bound any part of the sum: ‖Σ_{t∈M} l_t ⊗ r_t‖ ≤ ‖l‖_2 ‖r‖_F. Uncorrelated terms: about energy / √terms.
    """
    elements, kind = terms**2, torch.finfo(norms.dtype)
    return norms.to(WIDE).mul_(inflation(elements, norms.dtype)).add_((elements * kind.tiny) ** 0.5)
