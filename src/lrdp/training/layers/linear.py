"""Linear layers: the weight's gradient is a sum of outer products of output gradient and input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from lrdp.training.gradients import Dense, Factored, Vectors
from lrdp.training.layers.protocol import Call
from lrdp.training.tape import Share

_COST = "norms from two Gram matrices per example, one weighted matrix product"


class LinearRule:
    """``nn.Linear``: weight [outputs, inputs]."""

    name: ClassVar[str] = "linear"
    cost: ClassVar[str] = _COST
    parameters: ClassVar[Sequence[str]] = ("weight", "bias")

    def watch(self, call: Call) -> None:
        """Keep the input only if the weight is trained."""
        call.check_rows()
        weight, bias = call.trainable("weight"), call.trainable("bias")
        tape, inputs = call.tape, call.input if weight is not None else None

        def emit(gradient: Tensor) -> list[Share]:
            shares: list[Share] = []
            if weight is not None and inputs is not None:
                outputs = tape.by_row(gradient, weight.dtype)
                shares.append((weight, self.factored(outputs, tape.by_row(inputs, weight.dtype))))
            if bias is not None:
                shares.append((bias, Dense(tape.by_row(gradient, bias.dtype).sum(1))))
            return shares

        tape.watch(call.output, [p for p in (weight, bias) if p is not None], emit)

    def factored(self, outputs: Tensor, inputs: Tensor) -> Factored:
        return Factored(Vectors(outputs), inputs, outputs.shape[2])


class TransposedLinearRule(LinearRule):
    """``transformers``' ``Conv1D``, as in GPT-2: weight [inputs, outputs]."""

    name: ClassVar[str] = "transposed linear"

    def factored(self, outputs: Tensor, inputs: Tensor) -> Factored:
        return Factored(Vectors(inputs), outputs, inputs.shape[2])
