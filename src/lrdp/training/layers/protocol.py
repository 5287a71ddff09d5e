"""What a layer's rule does while the model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor
from torch.nn import Parameter

from lrdp.errors import Unsupported
from lrdp.training.tape import Tape


@dataclass(frozen=True)
class Call:
    """One call of a module while a tape runs."""

    tape: Tape
    module: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any

    @property
    def input(self) -> Tensor:
        """The first tensor given."""
        given: Tensor = self.args[0] if self.args else self.kwargs["input"]
        return given.detach()

    def trainable(self, name: str) -> Parameter | None:
        """The module's own parameter of that name, unless missing or frozen."""
        parameter = getattr(self.module, name, None)
        return parameter if parameter is not None and parameter.requires_grad else None

    def check_rows(self) -> None:
        """Refuse an input whose first dimension cannot be the examples'."""
        check_rows(self.tape, self.module, self.input)


def check_rows(tape: Tape, module: Any, inputs: Tensor) -> None:
    """Refuse ``inputs`` of ``module`` whose first dimension cannot be the examples'."""
    first = inputs.shape[0] if inputs.dim() else 0
    if first == 0 or first % tape.rows:
        raise Unsupported(
            f"{type(module).__name__} was given an input of shape {tuple(inputs.shape)} in a batch of {tape.rows}: its "
            f"first dimension must be the examples' (batch_first=True, positions with one row per example or a "
            f"leading 1)."
        )


class Rule(Protocol):
    """How a kind of layer yields per-example gradients."""

    name: ClassVar[str]
    cost: ClassVar[str]
    parameters: ClassVar[Sequence[str]]

    def watch(self, call: Call) -> None:
        """Register the call's output with the tape."""


class Expression(Protocol):
    """A kind of layer, re-expressed because its own kernel hides what flows inside or adds it up over examples."""

    name: ClassVar[str]
    cost: ClassVar[str]

    def fits(self, module: Any) -> bool:
        """Whether all that this module does is written out; if not, it is treated like any that has no rule."""

    def forward(self, tape: Tape, module: Any, *args: Any, **kwargs: Any) -> Any:
        """The module's own result, by other means."""
