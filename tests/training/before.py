"""The clipping of before, kept as a control: whoever searches for a way round the clip norm must find one here.

Squared norms came from float32 Gram matrices, with an allowance for rounding that did not grow with their width. Some
fell below zero and took others' squares with them. For models of linear layers and of convolutions without padding and
groups, each used once; shares nothing with the engine.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_HEADROOM = 2.0**-10


def computed_sum(model, loss, batch, live, clip_norm):
    """Σ coefficient · gradient over the live rows, over all parameters, in float64."""
    calls = _calls(model, loss, batch)
    squares: Any = sum(_weight_squares(*call) + _bias_squares(*call) for call in calls)
    weights = coefficients(squares, clip_norm * (1.0 - _HEADROOM)) * live
    parts = []
    for module, inputs, outputs in calls:
        left, right = _terms(module, inputs, outputs)
        scaled = left * weights.to(left.dtype)[:, None, None]
        parts.append((scaled.flatten(0, 1).t() @ right.flatten(0, 1)).flatten())
        if module.bias is not None:
            parts.append(left.sum(1).t() @ weights.to(left.dtype))
    return torch.cat(parts).double()


def coefficients(squares: Tensor, bound: float) -> Tensor:
    norms = squares.clamp(min=0.0).sqrt()
    return torch.where(torch.isfinite(norms), (bound / norms).clamp(max=1.0), 0.0)


def squares_of_products(left: Tensor, right: Tensor) -> Tensor:
    """‖Σ_t left_t ⊗ right_t‖² for factors [rows, terms, width]."""
    if left.shape[1] == 1:
        return _row_squares(left) * _row_squares(right)
    return _hadamard(torch.bmm(right, right.transpose(1, 2)), torch.bmm(left, left.transpose(1, 2)))


def squares_of_pixels(inputs: Tensor, outputs: Tensor, kernel: tuple[int, ...]) -> Tensor:
    """The same for a convolution of stride 1 in two dimensions, from inner products of raw pixels."""
    rows, _, height, width = inputs.shape
    (tall, wide), places = kernel, outputs.shape[2:].numel()
    pixels = inputs.flatten(2)
    gram: Any = torch.bmm(pixels.transpose(1, 2), pixels).view(rows, height, width, height, width)
    high, long = height - tall + 1, width - wide + 1
    gram = sum(gram[:, at : at + high, :, at : at + high] for at in range(tall))
    gram = sum(gram[:, :, at : at + long, :, at : at + long] for at in range(wide))
    slopes = outputs.flatten(2)
    return _hadamard(gram.reshape(rows, places, places), torch.bmm(slopes.transpose(1, 2), slopes))


def _hadamard(first: Tensor, second: Tensor) -> Tensor:
    """⟨first, second⟩ for each row, and an allowance that was thought to cover the rounding."""
    products = first * second
    lengths = products.diagonal(dim1=1, dim2=2).double().clamp(min=0.0).sqrt().sum(1)
    return products.sum((1, 2)) + lengths.square() * torch.finfo(products.dtype).eps


def _row_squares(values: Tensor) -> Tensor:
    return torch.linalg.vector_norm(values.flatten(1), dim=1).double().square()


def _weight_squares(module: nn.Module, inputs: Tensor, outputs: Tensor) -> Tensor:
    if isinstance(module, nn.Conv2d) and module.stride == (1, 1):
        return squares_of_pixels(inputs, outputs, module.kernel_size)
    return squares_of_products(*_terms(module, inputs, outputs))


def _bias_squares(module: Any, inputs: Tensor, outputs: Tensor) -> Tensor | float:
    return _row_squares(_terms(module, inputs, outputs)[0].sum(1)) if module.bias is not None else 0.0


def _terms(module: Any, inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Output gradients and inputs of every position, or of every patch: [rows, terms, width]."""
    if isinstance(module, nn.Linear):
        return outputs.view(len(outputs), -1, outputs.shape[-1]), inputs.reshape(len(inputs), -1, inputs.shape[-1])
    patches = functional.unfold(inputs, module.kernel_size, stride=module.stride)
    return outputs.flatten(2).transpose(1, 2), patches.transpose(1, 2)


def _calls(model: nn.Module, loss, batch) -> list[tuple[nn.Module, Tensor, Tensor]]:
    """Each layer with its input and the gradient at its output."""
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    hooks = [
        layer.register_forward_hook(lambda module, given, output: seen.append((module, given[0].detach(), output)))
        for layer in layers
    ]
    try:
        losses = loss(model, batch)
    finally:
        for hook in hooks:
            hook.remove()
    gradients = torch.autograd.grad(losses.sum(), [output for _, _, output in seen])
    return [(module, inputs, gradient) for (module, inputs, _), gradient in zip(seen, gradients, strict=True)]
