"""Replacing layers: what mixes examples by what does not, and weights by standardised ones."""

from __future__ import annotations

import copy
from math import gcd

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def replace_batch_norm(model: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of ``model`` with ``GroupNorm`` wherever it had ``BatchNorm``.

    Weight and bias are carried over, running statistics are not. ``groups`` is lowered to what divides the channels.

    >>> replace_batch_norm(nn.Sequential(nn.Conv2d(3, 24, 3), nn.BatchNorm2d(24)))[1].num_groups
    8
    """
    changed = copy.deepcopy(model)
    if isinstance(changed, _BatchNorm):
        return _group_norm(changed, groups)
    for name, module in list(changed.named_modules(remove_duplicate=False)):  # one layer may have two names
        if isinstance(module, _BatchNorm):
            changed.set_submodule(name, _group_norm(module, groups))
    return changed


def _group_norm(old: _BatchNorm, groups: int) -> nn.GroupNorm:
    new = nn.GroupNorm(gcd(groups, old.num_features), old.num_features, eps=old.eps, affine=old.affine)
    if old.affine:
        new.weight, new.bias = old.weight, old.bias
    return new


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose filters have mean 0 and squares that add up to 1, whatever its weights are.

    arXiv 1903.10520, with the filters divided by the root of their size as well, so that outputs are about as large as
    inputs. Its gradients come from the module run again for each example, because it computes its weights first.
    """

    smallest: float = 1e-4

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name in nn.Conv2d
        flat = self.weight.flatten(1)
        centred = flat - flat.mean(1, keepdim=True)
        scale = torch.rsqrt(centred.square().sum(1, keepdim=True) + self.smallest)
        standardised: Tensor = self._conv_forward(input, (centred * scale).view_as(self.weight), self.bias)
        return standardised


def standardise_weights(model: nn.Module) -> nn.Module:
    """A copy of ``model`` with ``StandardisedConv2d`` wherever it had ``Conv2d``, with the same weights to begin with.

    A filter of a single weight stays as it is: without its mean nothing is left of it.

    >>> type(standardise_weights(nn.Sequential(nn.Conv2d(3, 8, 3)))[0]).__name__
    'StandardisedConv2d'
    """
    changed = copy.deepcopy(model)
    for layer in changed.modules():
        if type(layer) is nn.Conv2d and layer.weight[0].numel() > 1:
            layer.__class__ = StandardisedConv2d
    return changed
