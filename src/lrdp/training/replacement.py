"""Replacing what mixes examples by what does not."""

from __future__ import annotations

import copy
from math import gcd

from torch import nn
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
    for parent in list(changed.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                setattr(parent, name, _group_norm(child, groups))
    return changed


def _group_norm(old: _BatchNorm, groups: int) -> nn.GroupNorm:
    new = nn.GroupNorm(gcd(groups, old.num_features), old.num_features, eps=old.eps, affine=old.affine)
    if old.affine:
        new.weight, new.bias = old.weight, old.bias
    return new
