"""Everything without a rule of its own: exact per-example gradients of that module alone, by ``torch.func``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import Parameter
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from lrdp.errors import Unsupported
from lrdp.training.gradients import KEPT_BYTES, Dense, Gradient, Measured, Mixed, multiplied_out
from lrdp.training.layers.batched import Batched
from lrdp.training.layers.protocol import Call
from lrdp.training.tape import Share
from lrdp.training.unlooking import unlooking

Tensors = list[Tensor]
_RANDOM = (
    "{name} has raw parameters and draws random numbers: a second run would differ from the first; set its dropout to "
    "0 or move the raw parameters into a module of their own."
)


@dataclass(frozen=True)
class Again:
    """A module's call that can be repeated for some of its rows, with its own raw parameters as an argument.

    ``names`` has every name of each of them: a tied one has several, of which ``own`` knows the first. ``split`` says
    which of the leaves are split by example, [examples, rows of each, …], as the cotangents are.
    """

    module: nn.Module
    own: dict[str, Parameter]
    names: dict[str, str]
    leaves: tuple[Any, ...]
    form: TreeSpec
    split: tuple[bool, ...]
    cotangents: dict[int, Tensor]

    def run(self, own: dict[str, Tensor], leaves: Sequence[Any]) -> Tensors:
        """The outputs that lead to the loss."""
        args, kwargs = tree_unflatten(list(leaves), self.form)
        given = {name: own[known] for name, known in self.names.items()}
        with unlooking():
            outputs, _ = tree_flatten(functional_call(self.module, given, args, kwargs, tie_weights=False))
        return [outputs[place] for place in self.cotangents]

    def some(self, chosen: slice | int) -> list[Any]:
        """The arguments of some examples, or of one, as the module is called with them."""
        return [leaf[chosen] if split else leaf for leaf, split in zip(self.leaves, self.split, strict=True)]

    def each(self, chosen: slice) -> dict[str, Tensor]:
        """The raw parameters' gradients for each of some rows: vectorised, or one by one where that is impossible."""
        leaves, cotangents = self.some(chosen), [value[chosen] for value in self.cotangents.values()]
        dims = [0 if split else None for split in self.split]
        values = {name: parameter.detach() for name, parameter in self.own.items()}

        def one(*given: Any) -> dict[str, Tensor]:
            pull: Any = vjp(lambda own: self.run(own, given[: len(leaves)]), values)[1]
            pulled: dict[str, Tensor] = pull(list(given[len(leaves) :]))[0]
            return pulled

        try:
            with warnings.catch_warnings():  # a slow batching rule is this rule's announced cost, not the user's fault
                warnings.filterwarnings("ignore", message="There is a performance drop")
                found: dict[str, Tensor] = vmap(one, in_dims=(*dims, *[0] * len(cotangents)))(*leaves, *cotangents)
            return found
        except (RuntimeError, NotImplementedError, ValueError) as reason:
            if "randomness" in str(reason):
                raise Unsupported(_RANDOM.format(name=type(self.module).__name__)) from None
            return self._one_by_one(chosen)

    def _one_by_one(self, chosen: slice) -> dict[str, Tensor]:
        rows = range(*chosen.indices(len(next(iter(self.cotangents.values())))))
        alone = [self._alone(row) for row in rows]
        return {name: torch.stack([gradients[name] for gradients in alone]) for name in self.own}

    def _alone(self, row: int) -> dict[str, Tensor]:
        """One example's gradients, by an ordinary backward pass through the module alone."""
        cotangents = [value[row] for value in self.cotangents.values()]
        with torch.enable_grad():
            own = {name: parameter.detach().requires_grad_() for name, parameter in self.own.items()}
            outputs = self.run(own, self.some(row))
            found = torch.autograd.grad(outputs, list(own.values()), cotangents, allow_unused=True)
        return {
            name: torch.zeros_like(own[name]) if gradient is None else gradient
            for name, gradient in zip(own, cast("tuple[Tensor | None, ...]", found), strict=True)
        }


@dataclass(frozen=True)
class Repeated:
    """Per-example gradients of one raw parameter that are computed again instead of being kept."""

    again: Again
    name: str
    count: int

    def measure(self) -> Measured:
        parameter = self.again.own[self.name]
        return multiplied_out(self, self.count, parameter.numel(), parameter.dtype)

    def rows(self, chosen: slice) -> Tensor:
        return self.again.each(chosen)[self.name].flatten(1).contiguous()

    @classmethod
    def join(cls, uses: Sequence[Repeated]) -> Gradient:
        return Mixed(tuple(uses), uses[0].count)


class Fallback:
    """Per-example gradients of a module's raw parameters, with its children's parameters held fixed."""

    name = "fallback"
    cost = "runs this module again for its own parameters, example by example in one vectorised pass"

    def __init__(self, batched: Batched) -> None:
        self._batched = batched

    def watch(self, call: Call) -> Any:
        """Keep the arguments, and return the outputs, with a row for each example where all share one."""
        _refuse_dropout(call.module)
        own = {name: p for name, p in call.module.named_parameters(recurse=False) if p.requires_grad}
        names = _all_names(call.module, own)
        leaves, form = tree_flatten((call.args, dict(call.kwargs)))
        kept = tuple(leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        outputs, outputs_form = tree_flatten(call.output)
        cotangents: dict[int, Tensor] = {}
        leading = [place for place, out in enumerate(outputs) if isinstance(out, Tensor) and out.requires_grad]
        for place in leading:
            output = call.tape.one_row_each(outputs[place])
            # One output may come from another, such as a cell's states: a copy gets none of the gradient from there.
            outputs[place] = output.clone() if len(leading) > 1 else output
            call.tape.watch(outputs[place], [], _keep(cotangents, place))

        def emit() -> list[Share]:
            if not cotangents:
                return []
            rows = call.tape.rows
            _check_rows(call, cotangents)
            each = self._batched.among(call.module, kept, rows)
            parted = tuple(_parted(leaf, rows) if found else leaf for leaf, found in zip(kept, each, strict=True))
            pulled = {place: _parted(value, rows) for place, value in cotangents.items()}
            return _shares(Again(call.module, own, names, parted, form, tuple(map(bool, each)), pulled), rows)

        call.tape.defer(list(own.values()), emit)
        return tree_unflatten(outputs, outputs_form)


def _all_names(module: nn.Module, own: dict[str, Parameter]) -> dict[str, str]:
    first = {parameter: name for name, parameter in own.items()}
    found = module.named_parameters(recurse=False, remove_duplicate=False)
    return {name: first[parameter] for name, parameter in found if parameter in first}


def _refuse_dropout(module: nn.Module) -> None:
    if any(isinstance(part, _DropoutNd) and part.training and part.p > 0 for part in module.modules()):
        raise Unsupported(_RANDOM.format(name=type(module).__name__))


def _check_rows(call: Call, cotangents: dict[int, Tensor]) -> None:
    for value in cotangents.values():
        if value.dim() == 0 or len(value) % call.tape.rows:
            raise Unsupported(
                f"{type(call.module).__name__} has raw parameters and an output of shape {tuple(value.shape)} in a "
                f"batch of {call.tape.rows}: what it adds for each example cannot be told apart; return one row each."
            )


def _parted(values: Tensor, rows: int) -> Tensor:
    """[examples, rows of each, …], from what has each example's rows one after the other."""
    return values.reshape(rows, -1, *values.shape[1:])


def _keep(cotangents: dict[int, Tensor], place: int) -> Callable[[Tensor], list[Share]]:
    def emit(gradient: Tensor) -> list[Share]:
        cotangents[place] = gradient.detach()
        return []

    return emit


def _shares(again: Again, rows: int) -> list[Share]:
    size = sum(parameter.numel() * parameter.element_size() for parameter in again.own.values())
    if rows * size > KEPT_BYTES:
        return [(parameter, Repeated(again, name, rows)) for name, parameter in again.own.items()]
    found = again.each(slice(None))
    return [(parameter, Dense(found[name].flatten(1).contiguous())) for name, parameter in again.own.items()]
