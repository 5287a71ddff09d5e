"""What the public sentence encoder all-MiniLM-L6-v2 makes of a text: means over its words, after some of its layers.

Texts are padded to a length that depends on their own words alone, and go through in passes of one shape for each
length, so that what comes out for one does not depend on those beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from lrdp.errors import InvalidInput

FOLDER: Final = "all-MiniLM-L6-v2"
WIDTH: Final = 384
LONGEST: Final = 64  # word pieces; what is longer is cut off
_LENGTHS: Final = (6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, LONGEST)
_WORDS_IN_A_PASS: Final = 2048


def files(data: Path) -> list[Path]:
    """What the encoder is read from."""
    return [data / FOLDER / name for name in ("config.json", "model.safetensors", "tokenizer.json")]


def tokens(texts: Sequence[str] | Sequence[tuple[str, str]], data: Path, length: int) -> Tensor:
    """Numbers of word pieces and which of them are there, (n, 2, length); pairs are joined by a separator."""
    tokenizer = _tokenizer(data)
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    found = tokenizer.encode_batch(list(texts))
    return torch.tensor([[each.ids, each.attention_mask] for each in found]).reshape(-1, 2, length)


@torch.no_grad()
def layer_means(texts: Sequence[str], data: Path, layers: Sequence[int]) -> Tensor:
    """For each text the means of its words after these layers, (n, layers, 384), in half precision."""
    tokenizer, model = _tokenizer(data), _model(data)
    tokenizer.enable_truncation(LONGEST)
    tokenizer.no_padding()
    pieces = [each.ids for each in tokenizer.encode_batch(list(texts))]
    wanted = np.searchsorted(_LENGTHS, [len(each) for each in pieces])
    found = torch.empty(len(texts), len(layers), WIDTH, dtype=torch.float16)
    for place in np.unique(wanted):
        length = _LENGTHS[place]
        rows = _WORDS_IN_A_PASS // length
        numbers = np.flatnonzero(wanted == place)
        for here in np.split(numbers, range(rows, len(numbers), rows)):
            means = _pass(model, [pieces[number] for number in here], (rows, length), layers)
            found[torch.from_numpy(here)] = means[: len(here)].half()
    return found


def _pass(model: Any, pieces: list[list[int]], shape: tuple[int, int], layers: Sequence[int]) -> Tensor:
    """Always of the same shape: rows that are left over are blank."""
    ids, there = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    there[:, 0] = 1
    for row, piece in enumerate(pieces):
        ids[row, : len(piece)] = torch.tensor(piece)
        there[row, : len(piece)] = 1
    states = model(input_ids=ids, attention_mask=there, output_hidden_states=True).hidden_states
    weights = there.float() / there.sum(1, keepdim=True)
    return torch.stack([torch.einsum("rw,rwd->rd", weights, states[layer]) for layer in layers], 1)


def _tokenizer(data: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(data / FOLDER / "tokenizer.json"))


def _model(data: Path) -> Any:
    try:
        from transformers import AutoModel
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        raise InvalidInput(
            "features of text need transformers: nothing was run; pip install 'lrdp[experiments]'."
        ) from None
    disable_progress_bar()
    return AutoModel.from_pretrained(str(data / FOLDER), local_files_only=True, dtype=torch.float32).eval()
