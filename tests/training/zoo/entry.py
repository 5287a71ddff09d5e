"""One model of the zoo: how it is made, what it is fed, and what the gate has to say about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

TOKENS, ENTRIES, CLASSES = 8, 50, 3
FIRST_WORD, END = 3, 2  # 0 pads, 1 begins
IGNORED = -100
Batch = tuple[Tensor, ...]
Records = Callable[[int, Generator], Batch]
Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """``alone`` and ``refused`` are parts of the sentence that is expected; both empty: examples run together.

    ``probes`` marks what does not take made-up records; ``frozen`` names what no record reaches, ``narrow`` what has no
    float64.
    """

    name: str
    family: str
    build: Callable[[], nn.Module]
    records: Records
    loss: Loss
    alone: str = ""
    refused: str = ""
    probes: bool = False
    frozen: tuple[str, ...] = ()
    narrow: bool = False

    def model(self, seed: int = 7) -> nn.Module:
        """A new one with the same weights for the same seed, in the mode that people train in."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            made = self.build().train()
        for name, parameter in made.named_parameters():
            if any(part in name for part in self.frozen):
                parameter.requires_grad_(False)
        return made

    def batch(self, count: int, seed: int) -> Batch:
        return self.records(count, torch.Generator().manual_seed(seed))


class Logits(nn.Module):
    """A model that is called by keywords and answers with ``logits``, called by columns."""

    def __init__(self, inner: nn.Module, *names: str) -> None:
        super().__init__()
        self.inner, self.names = inner, names

    def forward(self, *columns: Tensor) -> Tensor:
        return self.inner(**dict(zip(self.names, columns, strict=True))).logits


# --------------------------------------------------------------------------------------------------------------- losses
def of_classes(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(*batch[:-1]), batch[-1], reduction="none")


def of_tokens(model: nn.Module, batch: Batch) -> Tensor:
    """The mean over each example's own tokens that have a label."""
    return _mean_of_tokens(model(*batch[:-1]), batch[-1])


def of_next_tokens(model: nn.Module, batch: Batch) -> Tensor:
    return _mean_of_tokens(model(*batch[:-1])[:, :-1], batch[-1][:, 1:])


def _mean_of_tokens(logits: Tensor, labels: Tensor) -> Tensor:
    each = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=IGNORED)
    return each.sum(1) / (labels != IGNORED).sum(1).clamp(min=1)


def of_values(model: nn.Module, batch: Batch) -> Tensor:
    """For models whose output is compared with a target of the same shape."""
    return (model(*batch[:-1]) - batch[-1]).square().flatten(1).mean(1)


def as_given(model: nn.Module, batch: Batch) -> Tensor:
    """For models that answer with their losses."""
    return model(*batch)


# -------------------------------------------------------------------------------------------------------------- records
def labels(count: int, source: Generator) -> Tensor:
    return torch.randint(0, CLASSES, (count,), generator=source)


def words(count: int, source: Generator) -> Batch:
    """Sentences of one length, and a class."""
    ids = torch.randint(FIRST_WORD, ENTRIES, (count, TOKENS), generator=source)
    ids[:, -1] = END
    return ids, labels(count, source)


def sentences(count: int, source: Generator) -> Batch:
    """Sentences of different lengths, padded and masked, and a class."""
    ids, mask = _padded(count, source)
    return ids, mask, labels(count, source)


def _padded(count: int, source: Generator) -> Batch:
    lengths = torch.randint(3, TOKENS + 1, (count, 1), generator=source)
    places = torch.arange(TOKENS).expand(count, TOKENS)
    ids = torch.randint(FIRST_WORD, ENTRIES, (count, TOKENS), generator=source)
    ids = ids.masked_fill(places == lengths - 1, END).masked_fill(places >= lengths, 0)
    return ids, (places < lengths).long()


def gaps(count: int, source: Generator) -> Batch:
    """Sentences of different lengths of which some words are to be guessed; all other labels are ignored."""
    ids, mask = _padded(count, source)
    known = torch.rand(ids.shape, generator=source) < 0.5
    known[:, 0] = False
    return ids, mask, ids.masked_fill(known | (mask == 0), IGNORED)


def texts(count: int, source: Generator) -> Batch:
    """Sentences of different lengths, each its own label."""
    ids, mask = _padded(count, source)
    return ids, mask, ids.masked_fill(mask == 0, IGNORED)


def plain_texts(count: int, source: Generator) -> Batch:
    """Sentences of one length, each its own label."""
    ids, _ = words(count, source)
    return ids, ids


def numbers(*shape: int) -> Records:
    """Normal numbers of that shape, and a class."""
    return lambda count, source: (torch.randn(count, *shape, generator=source), labels(count, source))


def pictures(size: int = 16) -> Records:
    return numbers(3, size, size)


def pairs(shape: tuple[int, ...], target: tuple[int, ...]) -> Records:
    """Normal numbers, and others to be found from them."""
    return lambda n, source: (torch.randn(n, *shape, generator=source), torch.randn(n, *target, generator=source))
