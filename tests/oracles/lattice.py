"""Short vectors orthogonal to known numbers: what a server can do when the challenge is known beforehand."""

from __future__ import annotations

from fractions import Fraction


def dot(left: list[int], right: list[int]) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True))


def reduced(basis: list[list[int]]) -> list[list[int]]:
    """Lenstra, Lenstra and Lovász (δ = 3/4), by the book and in exact arithmetic."""
    basis = [list(row) for row in basis]
    k = 1
    while k < len(basis):
        for j in range(k - 1, -1, -1):
            _, weights = _orthogonal(basis[: k + 1])
            if nearest := round(weights[k][j]):
                basis[k] = [a - nearest * b for a, b in zip(basis[k], basis[j], strict=True)]
        norms, weights = _orthogonal(basis[: k + 1])
        if norms[k] >= (Fraction(3, 4) - weights[k][k - 1] ** 2) * norms[k - 1]:
            k += 1
        else:
            basis[k], basis[k - 1] = basis[k - 1], basis[k]
            k = max(k - 1, 1)
    return basis


def _orthogonal(basis: list[list[int]]) -> tuple[list[Fraction], list[list[Fraction]]]:
    """Squared lengths and coefficients of Gram–Schmidt, from inner products alone."""
    norms: list[Fraction] = []
    weights: list[list[Fraction]] = []
    scaled: list[list[Fraction]] = []
    for row in basis:
        products: list[Fraction] = []
        for j in range(len(norms)):
            inner = dot(row, basis[j]) - sum((weights[j][i] * products[i] for i in range(j)), Fraction(0))
            products.append(inner)
        weights.append([product / norm for product, norm in zip(products, norms, strict=True)])
        scaled.append(products)
        norms.append(dot(row, row) - sum((w * p for w, p in zip(weights[-1], products, strict=True)), Fraction(0)))
    return norms, weights


def vanishing(numbers: list[int], modulus: int) -> list[int]:
    """A short nonzero e with Σ e_i·numbers_i ≡ 0 modulo ``modulus``."""
    penalty = modulus
    rows = [[int(i == j) for j in range(len(numbers))] + [penalty * number] for i, number in enumerate(numbers)]
    rows.append([0] * len(numbers) + [penalty * modulus])
    return next(row[:-1] for row in reduced(rows) if row[-1] == 0 and any(row))
