"""What is refused, why, and what to do instead."""

from __future__ import annotations

from typing import Any

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


def _trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


_REFUSED = (
    (_BatchNorm, _batch_norm),
    (_InstanceNorm, _instance_norm),
    (LazyModuleMixin, _lazy),
    ((nn.DataParallel, nn.parallel.DistributedDataParallel), _parallel),
)
