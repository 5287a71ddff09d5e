"""What models of ``transformers`` have in common here: one tensor in, one tensor out, and sentences of one length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from lrdp.errors import InvalidInput
from lrdp.experiments.models.entry import Wanted

_PROBES: Final = 4
_LEAST_WORDS: Final = 3
_FEW_WORDS: Final = 29  # the lowest numbers, which every vocabulary has


def library(name: str) -> Any:
    """A package that not everybody has."""
    try:
        return import_module(name)
    except ImportError:
        raise InvalidInput(f"{name} missing: nothing was run; install it with pip install {name}.") from None


def loaded(kind: str, weights: str | Path, **given: Any) -> Any:
    """A public model in float32, from a folder or from the hub.

    Raises:
        InvalidInput: naming ``weights``, where it cannot be loaded.
    """
    maker = getattr(library("transformers"), kind)
    try:
        with _silent():
            return maker.from_pretrained(weights, dtype=torch.float32, **given)
    except (OSError, ValueError) as problem:
        first = str(problem).partition("\n")[0].rstrip(".")
        raise InvalidInput(f"the weights {weights} cannot be loaded ({first}): nothing was run.") from None


@contextmanager
def _silent() -> Iterator[None]:
    """Without a progress bar and a report: a head that is new, or one that is left out, is meant to be so."""
    say = library("transformers.utils.logging")
    level, bar = say.get_verbosity(), say.is_progress_bar_enabled()
    say.set_verbosity_error()
    say.disable_progress_bar()
    try:
        yield
    finally:
        say.set_verbosity(level)
        if bar:
            say.enable_progress_bar()


def arguments(tokens: Tensor) -> dict[str, Tensor]:
    """What BERT is given: all of it by example, and in a form that it takes without looking into the batch.

    It would make positions and types itself, once for all examples, and those have no gradient by example.
    """
    pieces, own = tokens[:, 0], tokens[:, 1]
    places = torch.arange(pieces.shape[1], device=tokens.device).expand_as(pieces)
    return {
        "input_ids": pieces,
        "attention_mask": (own == 1)[:, None, None, :],
        "position_ids": places.contiguous(),
        "token_type_ids": torch.zeros_like(pieces),
    }


def some_sentences(wanted: Wanted) -> Sequence[tuple[Tensor, Tensor]]:
    """Nobody's records, of all lengths: made-up ones would have masks with holes, as no sentence has."""
    _, length = wanted.shape
    source = torch.Generator().manual_seed(0)
    found = []
    for number in range(_PROBES):
        words = max(_LEAST_WORDS, length - number * (length // _PROBES))
        own = (torch.arange(length) < words).long()
        pieces = torch.randint(1, _FEW_WORDS, (length,), generator=source) * own
        found.append((torch.stack([pieces, own]), torch.tensor(number % wanted.classes)))
    return found
