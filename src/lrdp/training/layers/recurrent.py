"""Recurrent layers, written out step by step: the fused kernels add up over examples before anyone can look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from lrdp.errors import Unsupported
from lrdp.training.tape import Tape

CellState = tuple[Tensor, ...]
CellStep = Callable[[Tensor, Tensor, CellState], CellState]


def _lstm(inputs: Tensor, hidden: Tensor, state: CellState) -> CellState:
    enter, forget, candidate, leave = (inputs + hidden).chunk(4, -1)
    memory = forget.sigmoid() * state[1] + enter.sigmoid() * candidate.tanh()
    return leave.sigmoid() * memory.tanh(), memory


def _gru(inputs: Tensor, hidden: Tensor, state: CellState) -> CellState:
    reset_in, update_in, new_in = inputs.chunk(3, -1)
    reset_hidden, update_hidden, new_hidden = hidden.chunk(3, -1)
    new = (new_in + (reset_in + reset_hidden).sigmoid() * new_hidden).tanh()
    update = (update_in + update_hidden).sigmoid()
    return ((1.0 - update) * new + update * state[0],)


def _tanh(inputs: Tensor, hidden: Tensor, state: CellState) -> CellState:  # noqa: ARG001 - a cell's signature
    return ((inputs + hidden).tanh(),)


def _relu(inputs: Tensor, hidden: Tensor, state: CellState) -> CellState:  # noqa: ARG001 - a cell's signature
    return ((inputs + hidden).relu(),)


_CELLS: dict[str, CellStep] = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _tanh, "RNN_RELU": _relu}


class RecurrentExpression:
    """``nn.LSTM``, ``nn.GRU``, ``nn.RNN``: layers, directions, projections and initial states included."""

    name: ClassVar[str] = "recurrent"
    cost: ClassVar[str] = "time steps one by one instead of the fused kernel: 2 to 4 times its time"

    def fits(self, module: Any) -> bool:
        """Dropout between layers is not written out."""
        return not (module.dropout and module.training)

    def forward(self, tape: Tape, module: Any, inputs: Any, states: Any = None) -> Any:
        """The same outputs and final states."""
        if not isinstance(inputs, Tensor) or inputs.dim() != 3:
            raise Unsupported(
                "a recurrent layer takes a padded [examples, steps, features] tensor here: pad the sequences."
            )
        sequence = inputs if module.batch_first else inputs.transpose(0, 1)
        initial = _initial(module, sequence, states)
        finals: list[CellState] = []
        for layer in range(module.num_layers):
            directions = [
                _direction(
                    tape, module, sequence, f"l{layer}{suffix}", tuple(part[len(finals) + index] for part in initial)
                )
                for index, suffix in enumerate(("", "_reverse") if module.bidirectional else ("",))
            ]
            sequence = torch.cat([outputs for outputs, _ in directions], -1)
            finals += [final for _, final in directions]
        gathered = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
        outputs = sequence if module.batch_first else sequence.transpose(0, 1)
        return outputs, gathered if module.mode == "LSTM" else gathered[0]


def _initial(module: Any, sequence: Tensor, states: Any) -> CellState:
    if states is not None:
        return tuple(states) if module.mode == "LSTM" else (states,)
    count = module.num_layers * (2 if module.bidirectional else 1)
    hidden = sequence.new_zeros(count, len(sequence), module.proj_size or module.hidden_size)
    memory = sequence.new_zeros(count, len(sequence), module.hidden_size)
    return (hidden, memory) if module.mode == "LSTM" else (hidden,)


def _direction(tape: Tape, module: Any, sequence: Tensor, place: str, state: CellState) -> tuple[Tensor, CellState]:
    """One layer in one direction: all outputs in the order of the inputs, and the final state."""

    def own(name: str) -> Any:
        return getattr(module, f"{name}_{place}", None)

    cell, backwards = _CELLS[module.mode], place.endswith("_reverse")
    projected = tape.linear(sequence, own("weight_ih"), own("bias_ih"))
    outputs = []
    steps = range(sequence.shape[1])
    for step in reversed(steps) if backwards else steps:
        hidden = tape.linear(state[0], own("weight_hh"), own("bias_hh"))
        state = cell(projected[:, step], hidden, state)
        if module.proj_size:
            state = (tape.linear(state[0], own("weight_hr"), None), *state[1:])
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs, 1), state
