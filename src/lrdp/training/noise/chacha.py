"""ChaCha20 (RFC 8439) in torch's integer operations, for devices that no cipher library reaches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lrdp.errors import InvalidInput

_CONSTANTS = b"expand 32-byte k"
_KEY_BYTES = 32
_DOUBLE_ROUNDS = 10
_WORDS_PER_BLOCK = 8  # of 64 bits
_COUNTER = 12  # its place among a block's sixteen numbers
_MOST_BLOCKS = 1 << 31


def fill(words: Tensor, key: bytes) -> None:
    """Write the keystream of ``key`` over ``words``, 64 bits each, from the first block on and with a nonce of zeros.

    Guarantees: as far as anybody can tell, each key's stream is random and independent of any other key's. Whoever
    calls it gives each key once; nothing is kept here, so nothing can be copied, stored or forked.
    """
    blocks = -(-words.numel() // _WORDS_PER_BLOCK)
    if len(key) != _KEY_BYTES or blocks > _MOST_BLOCKS:
        raise InvalidInput(
            f"ChaCha20 takes a key of {_KEY_BYTES} bytes and makes at most {_MOST_BLOCKS} blocks of it, got {len(key)} "
            f"bytes for {blocks}: nothing was drawn."
        )
    first = torch.from_numpy(np.frombuffer(_CONSTANTS + key + bytes(16), dtype="<i4").copy())
    numbers = first.to(words.device).unsqueeze(1)
    counter = torch.arange(blocks, dtype=torch.int32, device=words.device)
    state = numbers.repeat(1, blocks)
    state[_COUNTER] += counter
    state = _mixed(state)
    state += numbers
    state[_COUNTER] += counter
    words.copy_(state.t().reshape(-1).view(torch.int64)[: words.numel()])


def _mixed(state: Tensor) -> Tensor:
    """Twenty rounds over the blocks' four rows of four, each a tensor of four by blocks: columns, then diagonals."""
    a, b, c, d = state.view(4, 4, -1).unbind()
    spare = torch.empty_like(a)
    for _ in range(_DOUBLE_ROUNDS):
        _round(a, b, c, d, spare)
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)
        _round(a, b, c, d, spare)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return torch.cat([a, b, c, d])


def _round(a: Tensor, b: Tensor, c: Tensor, d: Tensor, spare: Tensor) -> None:
    for grown, by, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        grown.add_(by)
        turned.bitwise_xor_(grown)
        torch.bitwise_right_shift(turned, 32 - bits, out=spare).bitwise_and_((1 << bits) - 1)  # it shifts the sign in
        torch.add(spare, turned, alpha=1 << bits, out=turned)  # a rotation: what falls out above is in spare
