"""The paper's words taken to the letter: each update cut into shares, one for each peer, sealed with AES-GCM.

An oracle for sums only. As a protocol it is weaker than masks: who publishes its partial sum last can hide a forgery.
"""

from __future__ import annotations

import random

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def shares(values: list[int], count: int, bits: int, rng: random.Random) -> list[list[int]]:
    drawn = [[rng.getrandbits(bits) for _ in values] for _ in range(count - 1)]
    last = [(value - sum(column)) % 2**bits for value, *column in zip(values, *drawn, strict=True)]
    return [*drawn, last]


def aggregate(updates: list[list[int]], bits: int, rng: random.Random) -> list[int]:
    """Σ updates by way of sealed shares and everybody's partial sum."""
    count, width = len(updates), bits // 8
    keys = {(i, j): rng.randbytes(32) for i in range(count) for j in range(count)}
    sealed = {}
    for i, values in enumerate(updates):
        for j, share in enumerate(shares(values, count, bits, rng)):
            raw = b"".join(value.to_bytes(width, "little") for value in share)
            sealed[i, j] = AESGCM(keys[i, j]).encrypt(bytes(12), raw, None)
    partial = []
    for j in range(count):
        opened = [AESGCM(keys[i, j]).decrypt(bytes(12), sealed[i, j], None) for i in range(count)]
        received = [
            [int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)] for raw in opened
        ]
        partial.append([sum(column) % 2**bits for column in zip(*received, strict=True)])
    total = [sum(column) % 2**bits for column in zip(*partial, strict=True)]
    return [value - 2**bits if value >= 2 ** (bits - 1) else value for value in total]
