"""Lengths of sums of outer products from Gram matrices: ‖Σ_t l_t ⊗ r_t‖² = ⟨l lᵀ, r rᵀ⟩, never below the truth."""

from __future__ import annotations

import torch
from torch import Tensor

from lrdp.training.clipping import WIDE
from lrdp.training.rounding import inflation, unit


def lengths(left: Tensor, right: Tensor, products: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Squares and reaches, as in ``Measured``, from two Gram matrices [rows, terms, terms]; ``left`` is overwritten.

    ``products`` says how many products each of the matrices' elements adds up.

    Guarantees: never below the truth, also where terms cancel, where products underflow or denormals are flushed
    (docs/training.md). A computed square may well lie below zero: it counts as zero, and the allowance is added.
    """
    terms, dtype = left.shape[1], left.dtype
    u, tiny = unit(dtype), torch.finfo(dtype).tiny
    length = sum(products) + terms + 4
    counts = torch.tensor(products, dtype=WIDE, device=left.device)[:, None]
    terms_squared = torch.stack([left.diagonal(dim1=1, dim2=2), right.diagonal(dim1=1, dim2=2)]).to(WIDE)
    terms_squared += counts[:, None] * tiny
    energies = terms_squared.sum(2)
    spread = terms_squared.prod(0).sqrt_().sum(1).square_()
    spectral = _spectral(left, right) + energies * (length * u)
    apart = (energies * spectral.flip(0) * counts).sum(0) + spectral.prod(0) * (terms + 4)
    rounding = torch.minimum(spread * length, apart) * u
    underflow = (energies.flip(0) * counts).sum(0).add_(terms).mul_(4.0 * terms * tiny)
    reaches = torch.minimum((spectral * energies.flip(0)).amin(0), spread)
    squares = left.mul_(right).sum(2).to(WIDE).sum(1).clamp_(min=0.0)
    above = inflation(length, dtype)
    return (squares + rounding + underflow) * above, reaches * above


def _spectral(left: Tensor, right: Tensor) -> Tensor:
    """The Frobenius norms of two Gram matrices, which bound the squared spectral norms of all left and all right terms.

    Those bound any part of the sum: ‖Σ_{t∈M} l_t ⊗ r_t‖ ≤ ‖l‖_2 ‖r‖_F. Uncorrelated terms: about energy / √terms.
    """
    elements = left.shape[1] ** 2
    norms = torch.stack([torch.linalg.vector_norm(gram.flatten(1), dim=1) for gram in (left, right)]).to(WIDE)
    return norms.mul_(inflation(elements, left.dtype)).add_((elements * torch.finfo(left.dtype).tiny) ** 0.5)
