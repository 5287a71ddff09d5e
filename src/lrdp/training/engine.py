"""The sum of clipped per-example gradients, by one forward and one backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.hooks import RemovableHandle

from lrdp.errors import InvalidInput, Unsupported
from lrdp.training.inspection import check, plan
from lrdp.training.kernels import check_kernels, full_precision
from lrdp.training.layers import Batched, Call, Expression, Fallback, Rule
from lrdp.training.rounding import HEADROOM
from lrdp.training.shapes import Shapes
from lrdp.training.tape import Tape
from lrdp.training.torch_losses import as_loss
from lrdp.training.unlooking import unlooking

# Beyond it the square of an output, and a mean of some of them, may leave float32: as good as infinite.
_LARGEST_OUTPUT = 2.0**60
Totals = dict[Parameter, Tensor]
Batch = Any
BatchLoss = Callable[[nn.Module, Batch], Tensor]


class Engine:
    """Hooks on a model, in place while the engine is entered.

    Guarantees: what is added to the totals is Σ weight_i · gradient_i with weights computed from the norms of exactly
    these gradients, over all trained parameters together. The model's weights and ``.grad`` are not touched.
    """

    def __init__(self, model: nn.Module, loss: BatchLoss, forward_dtype: torch.dtype | None = None) -> None:
        check(model).demand()
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.device, self.dtype = _one_device(model), _coarsest(self.parameters)
        self.model, self._loss, self.forward_dtype = model, loss, forward_dtype
        self._plan, self.batched = plan(model), Batched()
        self.shapes: Shapes | None = None
        with full_precision():
            check_kernels(self.device, self.dtype)
        self._handles: list[RemovableHandle] = []
        self._stack = ExitStack()
        self._tape: Tape | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(full_precision())
        for module, rule in self._plan.rules.items():
            self._handles.append(module.register_forward_pre_hook(self._one_row_each, with_kwargs=True))
            self._handles.append(module.register_forward_hook(partial(self._record, rule), with_kwargs=True))
        for module in self._plan.fallbacks:
            self._handles.append(module.register_forward_hook(self._record_again, with_kwargs=True))
        for module, expression in self._plan.expressions.items():
            self._stack.enter_context(_running(module, partial(self._express, expression, module, module.forward)))
        self._handles.append(self.model.register_forward_hook(self._finite))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._stack.close()

    @property
    def expressed(self) -> tuple[nn.Module, ...]:
        """The layers that are re-expressed while the engine runs."""
        return tuple(self._plan.expressions)

    def sweep(self, batch: Batch, rows: int) -> Tape:
        """One forward and one backward pass: the gradients measured, their weighted sum still to be taken."""
        tape = Tape(rows, self.device)
        losses = self._forward(tape, batch)
        if self.shapes is not None:
            self.shapes.demand(rows, tape.shapes)
        tape.sweep(losses)
        return tape

    def losses(self, batch: Batch, rows: int) -> Tensor:
        """Each example's loss, nothing recorded. Private."""
        with self.precision():
            losses = self._loss(self.model, batch)
        check_losses(losses, rows)
        return losses

    def rows_of(self, own: Tensor, batch: Batch) -> Tensor:
        """Marks of examples as marks of the rows that the model is given for them."""
        return own.repeat_interleave(as_loss(self._loss).rows_each(batch))

    def flow(self, batch: Batch, rows: int) -> list[Tensor]:
        """The losses, and all gradients that the layers' rules start from, by the very pass that is trained with.

        Nothing is computed from them. Private.
        """
        tape = Tape(rows, self.device)
        losses = self._forward(tape, batch)
        return [losses.detach(), *tape.flow(losses)]

    def plain_gradients(self, single: Batch) -> dict[Parameter, Tensor]:
        """The gradient of one example's loss for the parameters that get any, by torch alone. Private."""
        found: dict[Parameter, Tensor] = {}

        def take(name: str, gradient: Tensor) -> None:
            parameter = self.parameters[name]
            found[parameter] = found[parameter] + gradient if parameter in found else gradient

        self.backward(single, torch.ones(1, device=self.device), take)
        return found

    def backward(self, batch: Batch, weights: Tensor, take: Callable[[str, Tensor], None]) -> None:
        """The gradient of Σ weight_i · loss_i by torch alone, each parameter's taken as soon as it is there. Private.

        What is checkpointed in the old way comes in parts. ``.grad`` is empty meanwhile, and is put back.
        """

        def arrive(name: str, parameter: Tensor) -> None:
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None:
                take(name, gradient.to_dense() if gradient.is_sparse else gradient)

        before = [parameter.grad for parameter in self.parameters.values()]
        hooked: dict[str, Any] = dict(self.parameters)
        hooks = [p.register_post_accumulate_grad_hook(partial(arrive, name)) for name, p in hooked.items()]
        try:
            for parameter in self.parameters.values():
                parameter.grad = None
            with torch.enable_grad():
                loss = (self.losses(batch, len(weights)) * weights).sum()
            if loss.requires_grad:
                torch.autograd.backward(loss)  # not grad(), which fails with what is checkpointed in the old way
        finally:
            for hook, parameter, gradient in zip(hooks, self.parameters.values(), before, strict=True):
                hook.remove()
                parameter.grad = gradient

    def _forward(self, tape: Tape, batch: Batch) -> Tensor:
        self._tape = tape
        try:
            with torch.enable_grad(), self.precision(), unlooking():
                losses = self._loss(self.model, batch)
        finally:
            self._tape = None
        check_losses(losses, tape.rows)
        return losses

    def precision(self) -> Any:
        """The context that a forward pass runs in."""
        if self.forward_dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.forward_dtype)

    def _finite(self, _: nn.Module, args: Any, output: Any) -> Any:  # noqa: ARG002 - a hook's signature
        """The model's output with ones where an example's is not finite; the example is given up.

        Many losses raise for what is not finite, and an error would tell that such a record is there. 1 is a valid
        number, probability, rate and variance, so they take it.
        """
        if self._tape is None:
            return output
        leaves, form = tree_flatten(output)
        for place, own in enumerate(self.batched.among(None, leaves, self._tape.rows)):
            if own and leaves[place].is_floating_point():
                leaves[place] = _tamed(self._tape, leaves[place])
        return tree_unflatten(leaves, form)

    def _one_row_each(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return None if self._tape is None or not args else ((self._tape.one_row_each(args[0]), *args[1:]), kwargs)

    def _record(self, rule: Rule, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self._tape is not None:
            rule.watch(Call(self._tape, module, args, kwargs, output))

    def _record_again(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if self._tape is None:
            return output
        return Fallback(self.batched).watch(Call(self._tape, module, args, kwargs, output))

    def _express(
        self, expression: Expression, module: nn.Module, original: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        if self._tape is None:
            return original(*args, **kwargs)
        return expression.forward(self._tape, module, *args, **kwargs)


@contextmanager
def _running(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Have ``module`` run another ``forward``; one of its own, in place of its class's, is put back afterwards."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def _tamed(tape: Tape, values: Tensor) -> Tensor:
    """An example may have several rows of them, one after the other."""
    finite = (values.detach().abs() <= _LARGEST_OUTPUT).reshape(tape.rows, -1).all(1)
    tape.give_up(~finite)
    each = finite.repeat_interleave(len(values) // tape.rows)
    return torch.where(each.view(-1, *(1,) * (values.dim() - 1)), values, 1.0)


def check_losses(losses: Any, rows: int) -> None:
    """Refuse a loss that is not one value per example."""
    if not isinstance(losses, Tensor):
        raise InvalidInput(f"loss must return a tensor with one value per example, got {type(losses).__name__}.")
    if losses.dim() == 1 and len(losses) == rows:
        return
    raise InvalidInput(
        f"loss must return one value per example, shape ({rows},), got {tuple(losses.shape)}: an average cannot be "
        f"taken apart again; use reduction='none', a mean over each example's own dimensions, and squeeze(-1) "
        f"instead of squeeze(), which drops a batch of one."
    )


def _one_device(model: nn.Module) -> torch.device:
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        names = ", ".join(sorted(map(str, devices)))
        raise Unsupported(f"the model must lie on one device, got {names}: noise is added once, on one device.")
    return devices.pop()


def _coarsest(parameters: Mapping[str, Parameter]) -> torch.dtype:
    """The trained weights' type; of two, the one that rounds more."""
    found = {parameter.dtype: name for name, parameter in parameters.items()}
    for dtype, name in found.items():
        if dtype not in HEADROOM:
            raise Unsupported(
                f"trained weights must be float32 or float64, but {name} is {dtype}: train in float32 (model.float()) "
                f"and set forward_dtype for speed."
            )
    return torch.float32 if torch.float32 in found else torch.float64
