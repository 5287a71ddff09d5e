"""``nn.MultiheadAttention``, written out: it multiplies with its projections without calling them as modules."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from lrdp.errors import Unsupported
from lrdp.training.tape import Tape


class AttentionExpression:
    """Self- and cross-attention, masks and averaged weights included."""

    name: ClassVar[str] = "multi-head attention"
    cost: ClassVar[str] = "projections as linear layers; cross-attention computes them once for each of its inputs"

    def fits(self, module: Any) -> bool:
        """Learned key and value rows are not written out."""
        return module.bias_k is None and not module.add_zero_attn

    def forward(  # noqa: PLR0913 - the signature of nn.MultiheadAttention
        self,
        tape: Tape,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,  # noqa: ARG002 - a hint that comes with the mask it describes
    ) -> tuple[Tensor, Tensor | None]:
        """The same outputs, and attention weights if asked for."""
        if query.dim() != 3:
            raise Unsupported("MultiheadAttention takes [examples, steps, features] here: add the batch dimension.")
        same = query is key and key is value
        given = [tensor if module.batch_first else tensor.transpose(0, 1) for tensor in (query, key, value)]
        heads = [_heads(part, module) for part in _projected(tape, module, given, same)]
        mask = _mask(key_padding_mask, attn_mask, heads[0])
        dropout = module.dropout if module.training else 0.0
        attended, weights = _attend(heads, mask, dropout, need_weights)
        merged = attended.transpose(1, 2).flatten(2)
        output = tape.linear(merged, module.out_proj.weight, module.out_proj.bias)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if module.batch_first:
            # In memory, torch's own has steps before examples; a dropout that follows draws its mask in that order.
            return output.transpose(0, 1).contiguous().transpose(0, 1), weights
        return output.transpose(0, 1), weights


def _projected(tape: Tape, module: Any, given: list[Tensor], same: bool) -> list[Tensor]:
    """Queries, keys and values. A joint weight is applied whole, so that its gradient has one shape in every use."""
    weight, bias = module.in_proj_weight, module.in_proj_bias
    if weight is None:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        parts = [tape.linear(one, getattr(module, name), None) for one, name in zip(given, names, strict=True)]
        return parts if bias is None else _with_bias(tape, parts, bias)
    if same:
        return list(tape.linear(given[0], weight, bias).chunk(3, -1))
    return [tape.linear(one, weight, bias).chunk(3, -1)[place] for place, one in enumerate(given)]


def _with_bias(tape: Tape, parts: list[Tensor], bias: nn.Parameter) -> list[Tensor]:
    """Each part plus its third of the joint bias, recorded as a linear map from nothing."""
    return [
        part + tape.linear(part.new_zeros(*part.shape[:2], 1), _no_weight(bias), bias).chunk(3, -1)[place]
        for place, part in enumerate(parts)
    ]


def _no_weight(bias: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(bias.new_zeros(len(bias), 1), requires_grad=False)


def _heads(part: Tensor, module: Any) -> Tensor:
    return part.reshape(*part.shape[:2], module.num_heads, -1).transpose(1, 2)


def _mask(padding: Tensor | None, attention: Tensor | None, query: Tensor) -> Tensor | None:
    """Both masks as one that is added to the scores."""
    parts = []
    if padding is not None:
        parts.append(_additive(padding, query)[:, None, None, :])
    if attention is not None:
        scores = _additive(attention, query)
        parts.append(scores if scores.dim() == 2 else scores.reshape(len(query), -1, *scores.shape[1:]))
    return sum(parts[1:], parts[0]) if parts else None


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))


def _attend(heads: list[Tensor], mask: Tensor | None, dropout: float, weighed: bool) -> tuple[Tensor, Tensor | None]:
    query, key, value = heads
    if not weighed:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout), None
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    weights = functional.dropout((scores if mask is None else scores + mask).softmax(-1), dropout)
    return weights @ value, weights
