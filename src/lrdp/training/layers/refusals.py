"""What is refused, why, and what to do instead."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin

_MIXES = "mixes the examples of a batch, so no example's gradient is its own"


def refusal(module: nn.Module) -> str | None:
    """Why ``module`` cannot be trained privately, with the fix, or None."""
    for kinds, reason in _REFUSED:
        if isinstance(module, kinds):
            found = reason(module)
            if found is not None:
                return found
    return None


def _batch_norm(module: Any) -> str | None:
    if not module.training and not _trained(module) and module.running_mean is not None:
        return None
    return f"{_MIXES}: lrdp.training.replace_batch_norm(model) puts GroupNorm in its place"


def _instance_norm(module: Any) -> str | None:
    if not module.track_running_stats:
        return None
    return "keeps running statistics of private data: use track_running_stats=False"


def _lazy(module: Any) -> str | None:
    waiting = [p for p in module.parameters(recurse=False) if nn.parameter.is_lazy(p)]
    return "its parameters have no shape yet: run the model once on dummy data" if waiting else None


def _parallel(_: nn.Module) -> str:
    return "adds up gradients over devices, so noise is added once too often or not enough: pass the bare model"


def _renormed(module: Any) -> str | None:
    if module.max_norm is None:
        return None
    return "shortens the rows of those tokens that it sees, without noise: use max_norm=None"


def _scripted(_: nn.Module) -> str:
    return "is compiled by torch.jit and takes no hooks: pass the module that it was made from"


def _hooked(module: nn.Module) -> str | None:
    """A hook sees one example's gradient before there is noise, and may keep it, change it or step by it."""
    for name, parameter in module.named_parameters(recurse=False):
        held: Any = parameter
        if parameter.requires_grad and (held._backward_hooks or held._post_accumulate_grad_hooks):
            return f"has a hook on the gradient of {name}, which would see single examples without noise: remove it"
    return None


def _trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


_REFUSED = (
    (torch.jit.ScriptModule, _scripted),
    (_BatchNorm, _batch_norm),
    (_InstanceNorm, _instance_norm),
    ((nn.Embedding, nn.EmbeddingBag), _renormed),
    (LazyModuleMixin, _lazy),
    ((nn.DataParallel, nn.parallel.DistributedDataParallel), _parallel),
    (nn.Module, _hooked),
)
