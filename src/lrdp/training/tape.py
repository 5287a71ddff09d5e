"""The books of one backward pass: which gradient flowed where, and how long each example's share of it is.

Layers register their outputs while the model runs forward. One backward pass then delivers each output's gradient; the
layer's rule turns it into the per-example gradients of its parameters, in a cheap form, and the norm is taken at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import Parameter, functional

from lrdp.errors import Unsupported
from lrdp.training.clipping import WIDE, Lengths
from lrdp.training.gradients import Dense, Factored, Gradient, Kept, Vectors, combine
from lrdp.training.terminals import terminals

Share = tuple[Parameter, Gradient]
Emit = Callable[[Tensor], Iterable[Share]]


class Tape:
    """One forward and one backward pass over ``rows`` examples."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.rows = rows
        self._squares = torch.zeros(rows, dtype=WIDE, device=device)
        self._roundings = torch.zeros_like(self._squares)
        self._meetings: set[int] = set()
        self.shapes: list[tuple[int, ...]] = []
        self._edges: list[GradientEdge] = []
        self._waiting: dict[int, Emit] = {}
        self._uses: dict[Parameter, int] = {}
        self._open: dict[Parameter, list[Gradient]] = {}
        self._kept: list[tuple[Parameter, Kept]] = []
        self._deferred: list[Callable[[], Iterable[Share]]] = []

    def watch(self, output: Tensor, parameters: Sequence[Parameter], emit: Emit) -> None:
        """Have ``emit`` turn the output's gradient into those of ``parameters``, when it arrives."""
        if not output.requires_grad:
            return
        self.shapes.append(tuple(output.shape))
        self._edges.append(get_gradient_edge(output))
        self._count(parameters)
        number = len(self._edges)
        self._waiting[number] = emit
        hooked: Any = output
        hooked.register_hook(partial(self._arrive, number))

    def defer(self, parameters: Sequence[Parameter], emit: Callable[[], Iterable[Share]]) -> None:
        """Have ``emit`` run once the whole backward pass is over."""
        self._count(parameters)
        self._deferred.append(emit)

    def linear(self, inputs: Tensor, weight: Parameter, bias: Parameter | None) -> Tensor:
        """A linear map whose weight and bias are recorded: what re-expressed layers are built from."""
        output = functional.linear(inputs, weight, bias)
        parameters = [p for p in (weight, bias) if p is not None and p.requires_grad]
        self.watch(output, parameters, partial(self._linear_shares, inputs.detach(), weight, bias))
        return output

    def _linear_shares(
        self, inputs: Tensor, weight: Parameter, bias: Parameter | None, gradient: Tensor
    ) -> list[Share]:
        outputs = self.by_row(gradient, weight.dtype)
        shares: list[Share] = []
        if weight.requires_grad:
            shares.append((weight, Factored(Vectors(outputs), self.by_row(inputs, weight.dtype), weight.shape[0])))
        if bias is not None and bias.requires_grad:
            shares.append((bias, Dense(outputs.sum(1))))
        return shares

    def one_row_each(self, values: Tensor) -> Tensor:
        """``values``, with a row for each example where all share one, such as positions [1, steps].

        Otherwise the examples' gradients would be added up in the one row before they can be clipped.
        """
        shared = values.dim() > 0 and len(values) == 1
        return values.expand(self.rows, *values.shape[1:]) if shared else values

    def by_row(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """``values`` as [rows, terms, width], in the parameters' type."""
        if values.shape[0] % self.rows:
            raise Unsupported(
                f"an inner tensor of shape {tuple(values.shape)} has no row for each of {self.rows} examples."
            )
        return values.detach().to(dtype).reshape(self.rows, -1, values.shape[-1])

    def sweep(self, losses: Tensor) -> None:
        """The one backward pass: every input's gradient, no weight's.

        Weights' gradients would be sums over examples already, and of no use.
        """
        self._back_from(losses)
        with torch.no_grad():
            for emit in self._deferred:
                self._take(emit())
            self._deferred = []
            for parameter, uses in self._open.items():
                self._measure(parameter, combine(uses, self.rows))
        self._open = {}

    def flow(self, losses: Tensor) -> list[Tensor]:
        """The same pass, but the gradients are handed out as they arrive, and no rule runs."""
        arrived: list[Tensor] = []

        def keep(gradient: Tensor) -> list[Share]:
            arrived.append(gradient.detach())
            return []

        self._waiting = dict.fromkeys(self._waiting, keep)
        self._back_from(losses)
        # Books and outputs refer to each other, and would stay until the garbage collector finds them.
        self._waiting, self._deferred = {}, []
        return arrived

    def _back_from(self, losses: Tensor) -> None:
        ends, self._edges = terminals(self._edges), []
        if ends and losses.requires_grad:
            # From each loss by itself: rows would meet in a sum of all.
            torch.autograd.grad(losses, ends, torch.ones_like(losses), allow_unused=True)

    def give_up(self, rows: Tensor) -> None:
        """Leave the marked examples without weight: they are not finite, wherever that was seen."""
        self._squares.masked_fill_(rows, torch.inf)

    @property
    def lengths(self) -> Lengths:
        """Of each example over all parameters; parameters whose meetings differ in size meet different examples."""
        return Lengths(self._squares, self._roundings * len(self._meetings))

    @property
    def least_meeting(self) -> int:
        """The fewest examples that are added up together: the fewer, the more partial sums a total has."""
        return min(self._meetings, default=self.rows)

    def release(self, weights: Tensor, totals: dict[Parameter, Tensor], dtype: torch.dtype | None = None) -> None:
        """Add each example's gradient, times its weight, to ``totals``; the books are empty afterwards.

        New totals are of type ``dtype``, or of the parameter's. What has weight 0 is taken out, finite or not.
        """
        for _ in self.releasing(weights, totals, dtype):
            pass

    def releasing(
        self, weights: Tensor, totals: dict[Parameter, Tensor], dtype: torch.dtype | None = None
    ) -> Iterator[Parameter]:
        """The same, one parameter after the other: whoever takes each total away at once never holds them all."""
        # The smallest parameters first: their inputs and gradients are gone before the largest sums are made.
        self._kept.sort(key=lambda share: share[0].numel(), reverse=True)
        with torch.no_grad():
            while self._kept:
                parameter, kept = self._kept.pop()
                if parameter not in totals:
                    totals[parameter] = torch.zeros_like(
                        parameter, dtype=dtype or parameter.dtype, memory_format=torch.contiguous_format
                    )
                kept.add_to(totals[parameter], weights.to(parameter.dtype))
                yield parameter

    def _count(self, parameters: Sequence[Parameter]) -> None:
        for parameter in parameters:
            self._uses[parameter] = self._uses.get(parameter, 0) + 1

    def _arrive(self, number: int, gradient: Tensor) -> None:
        """Hooks outlive the pass, so what a layer kept for its rule is let go here, as soon as the rule has run."""
        emit = self._waiting.pop(number, None)
        if emit is None:
            raise Unsupported("gradients arrive twice, as where a loss takes some itself.")
        with torch.no_grad():
            self._take(emit(gradient))

    def _take(self, shares: Iterable[Share]) -> None:
        """A parameter used once is measured at once; the uses of others wait for each other."""
        for parameter, gradient in shares:
            if self._uses[parameter] == 1:
                self._measure(parameter, gradient)
            else:
                self._open.setdefault(parameter, []).append(gradient)

    def _measure(self, parameter: Parameter, gradient: Gradient) -> None:
        found = gradient.measure()
        if found.squares.shape != self._squares.shape:
            raise Unsupported(
                f"a parameter of shape {tuple(parameter.shape)} has {len(found.squares)} per-example gradients for "
                f"{self.rows} examples: the model merges examples with another dimension first; keep them apart."
            )
        meeting = found.kept.meeting
        self._squares += found.squares
        self._roundings += found.reaches * meeting.radius**2
        self._meetings.add(meeting.rows)
        self._kept.append((parameter, found.kept))
