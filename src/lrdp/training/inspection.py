"""Which rule applies to each layer of a model, what it costs, what is refused and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from lrdp.errors import Unsupported
from lrdp.training.layers import Expression, Fallback, Rule, expression_for, refusal, rule_for, trained
from lrdp.training.rounding import HEADROOM

_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One module that trains parameters of its own, or that is refused."""

    path: str
    kind: str
    parameters: int
    rule: str
    cost: str
    refused: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelReport:
    """What a model's layers are to the engine, and which share of the clip norm it keeps free for rounding."""

    layers: tuple[Layer, ...]
    headroom: float

    @property
    def refused(self) -> tuple[Layer, ...]:
        """The layers that stand in the way."""
        return tuple(layer for layer in self.layers if layer.refused is not None)

    @property
    def trainable(self) -> bool:
        """Whether the model can be trained as it is."""
        return not self.refused and any(layer.parameters for layer in self.layers)

    def demand(self) -> None:
        """Raise if anything is refused, naming layers, the reason and the fix."""
        if self.refused:
            raise Unsupported(f"{len(self.refused)} layers cannot be trained privately: {_reasons(self.refused)}.")
        if not self.trainable:
            raise Unsupported("the model has no trainable parameter: set requires_grad on what is to be trained.")


def _reasons(refused: Sequence[Layer]) -> str:
    """Each reason once, with the layers it holds for."""
    paths: dict[str, list[str]] = {}
    for layer in refused:
        paths.setdefault(f"({layer.kind}) {layer.refused}", []).append(layer.path)
    return "; ".join(f"{_some(found)} {reason}" for reason, found in paths.items())


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:_NAMED]) + (f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else "")


@dataclass(frozen=True)
class LayerPlan:
    """How each module of a model is handled."""

    rules: dict[nn.Module, Rule]
    expressions: dict[nn.Module, Expression]
    fallbacks: tuple[nn.Module, ...]


def check(model: nn.Module) -> ModelReport:
    """The report on ``model``, without running it and without data.

    >>> from torch import nn
    >>> report = check(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    >>> [layer.rule for layer in report.layers]
    ['linear', 'refused']
    """
    trained = (HEADROOM.get(parameter.dtype, 0.0) for parameter in model.parameters() if parameter.requires_grad)
    return ModelReport(layers=tuple(_layers(model)), headroom=max(trained, default=0.0))


def plan(model: nn.Module) -> LayerPlan:
    """How to handle each module of ``model``; refused models never get here."""
    rules: dict[nn.Module, Rule] = {}
    expressions: dict[nn.Module, Expression] = {}
    fallbacks: list[nn.Module] = []
    for _, module, expression in _own_modules(model):
        rule = rule_for(module)
        if expression is not None:
            expressions[module] = expression
        elif rule is not None:
            rules[module] = rule
        else:
            fallbacks.append(module)
    return LayerPlan(rules, expressions, tuple(fallbacks))


def _layers(model: nn.Module) -> Iterator[Layer]:
    owners = {path: expression for path, _, expression in _own_modules(model)}
    for path, module in model.named_modules():
        reason, expression = refusal(module), owners.get(path)
        if reason is not None:
            yield _layer(path, module, "refused", "", reason)
        elif expression is not None:
            yield _layer(path, module, expression.name, expression.cost, None)
        elif path in owners:
            rule = rule_for(module) or Fallback
            yield _layer(path, module, rule.name, rule.cost, None)


def _own_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, Expression | None]]:
    """Modules with trained parameters of their own; the inside of a re-expressed module is not visited."""
    inside: set[nn.Module] = set()
    for path, module in model.named_modules():
        if module in inside:
            continue
        expression = expression_for(module)
        if expression is not None:
            inside.update(module.modules())
        if expression is not None or trained(module):
            yield path, module, expression


def _layer(path: str, module: nn.Module, rule: str, cost: str, refused: str | None) -> Layer:
    own = 0 if refused else sum(p.numel() for p in module.parameters(recurse=False) if p.requires_grad)
    return Layer(
        path=path or "(the model)", kind=type(module).__name__, parameters=own, rule=rule, cost=cost, refused=refused
    )
