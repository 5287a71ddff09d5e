"""Embeddings: the weight's gradient adds up output gradients where the indices say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from lrdp.errors import Unsupported
from lrdp.training.gradients import Factored, Indices
from lrdp.training.layers.protocol import Call
from lrdp.training.tape import Share


class EmbeddingRule:
    """``nn.Embedding``, with ``padding_idx``."""

    name: ClassVar[str] = "embedding"
    cost: ClassVar[str] = "norms from one Gram matrix per example, one indexed addition"
    parameters: ClassVar[Sequence[str]] = ("weight",)

    def watch(self, call: Call) -> None:
        """Keep the indices."""
        call.check_rows()
        module, weight = call.module, call.trainable("weight")
        if weight is None:
            return
        if module.scale_grad_by_freq:
            raise Unsupported("scale_grad_by_freq scales one example's gradient by how often others have its tokens.")
        tape, indices = call.tape, call.input.reshape(call.tape.rows, -1)

        def emit(gradient: Tensor) -> list[Share]:
            outputs = tape.by_row(gradient, weight.dtype)
            if module.padding_idx is not None:
                outputs = outputs.masked_fill((indices == module.padding_idx)[:, :, None], 0.0)
            return [(weight, Factored(Indices(indices), outputs, weight.shape[0]))]

        tape.watch(call.output, [weight], emit)
