"""torch's optimisers where one of ours is expected: the same steps, or a sentence that says what to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn, optim

from lrdp.errors import InvalidInput
from lrdp.training.optimisers import Adam, AdamW, Optimiser, Sgd

_KEPT: Final[Mapping[type[optim.Optimizer], tuple[Callable[..., Optimiser], tuple[str, ...]]]] = {
    optim.SGD: (Sgd, ("lr", "momentum", "weight_decay")),
    optim.Adam: (Adam, ("lr", "betas", "eps", "weight_decay")),
    optim.AdamW: (AdamW, ("lr", "betas", "eps", "weight_decay")),
}
_OFF: Final = ("dampening", "nesterov", "maximize", "amsgrad")
"""Settings of torch's that change the steps and that ours do not have."""
_HOW: Final = ("foreach", "differentiable", "fused", "capturable", "params", "decoupled_weight_decay")
"""Settings that change how steps are computed, or that the class itself implies."""


def as_optimiser(given: Any) -> Optimiser:
    """One of ours, or what makes one of torch's: a class, ``partial(optim.SGD, lr=…)``, or any function of parameters.

    >>> from functools import partial
    >>> as_optimiser(partial(optim.SGD, lr=0.5, momentum=0.9))
    Sgd(lr=0.5, momentum=0.9, weight_decay=0.0, over_rounds=False)
    """
    if isinstance(given, optim.Optimizer):
        raise InvalidInput(
            f"an optimiser of torch's holds the parameters of one model, and an update starts one for its own: write "
            f"{_as_ours(given)!r}, from lrdp.training."
        )
    if not callable(given):
        return given  # type: ignore[no-any-return]
    try:
        made = given([nn.Parameter(torch.zeros(1))])
    except (TypeError, ValueError) as problem:
        raise InvalidInput(f"the optimiser cannot be made ({problem}): write it as Sgd(lr=0.1).") from None
    if not isinstance(made, optim.Optimizer):
        raise InvalidInput(f"the optimiser makes a {type(made).__name__}: write Sgd(lr=…), Adam(lr=…) or AdamW(lr=…).")
    return _as_ours(made)


def _as_ours(given: optim.Optimizer) -> Optimiser:
    """Ours, whose steps are the same; raises where they would not be."""
    kind, settings = type(given), _settings(given)
    if kind is optim.Adam and settings.get("decoupled_weight_decay"):
        kind = optim.AdamW
    if kind not in _KEPT:
        raise InvalidInput(f"{kind.__name__} has no private counterpart: write Sgd(lr=…), Adam(lr=…) or AdamW(lr=…).")
    ours, names = _KEPT[kind]
    odd = [name for name in settings.keys() - {*names, *_HOW} if name not in _OFF or settings[name]]
    if odd:
        raise InvalidInput(
            f"{kind.__name__} with {', '.join(f'{name}={settings[name]}' for name in sorted(odd))} takes other steps "
            f"than any private optimiser: leave that out, or write {ours.__name__}(lr=…)."
        )
    return ours(**{name: _plain(settings[name]) for name in names})


def _settings(given: optim.Optimizer) -> dict[str, Any]:
    first, *others = ({**group, "params": None} for group in given.param_groups)
    if others:
        raise InvalidInput(
            "an optimiser with several groups of parameters takes different steps for each, and a private one the same "
            "for all: freeze what is not to be trained, and write Sgd(lr=…)."
        )
    return first


def _plain(value: Any) -> Any:
    """Rates may be tensors, which a public value is not."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return float(value)
