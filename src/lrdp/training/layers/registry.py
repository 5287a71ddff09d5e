"""Which rule belongs to which kind of layer."""

from __future__ import annotations

from torch import nn

from lrdp.training.layers import normalisation
from lrdp.training.layers.attention import AttentionExpression
from lrdp.training.layers.convolution import ConvolutionRule
from lrdp.training.layers.embedding import EmbeddingRule
from lrdp.training.layers.group_norm import GroupNormExpression
from lrdp.training.layers.linear import LinearRule, TransposedLinearRule
from lrdp.training.layers.normalisation import NormalisationRule
from lrdp.training.layers.protocol import Expression, Rule
from lrdp.training.layers.recurrent import RecurrentExpression

_CONVOLUTION = ConvolutionRule()
_INSTANCE_NORM = NormalisationRule(normalisation.instance_norm, channels_last=False)
_RECURRENT = RecurrentExpression()

_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: LinearRule(),
    nn.Conv1d: _CONVOLUTION,
    nn.Conv2d: _CONVOLUTION,
    nn.Conv3d: _CONVOLUTION,
    nn.Embedding: EmbeddingRule(),
    nn.InstanceNorm1d: _INSTANCE_NORM,
    nn.InstanceNorm2d: _INSTANCE_NORM,
    nn.InstanceNorm3d: _INSTANCE_NORM,
    nn.LayerNorm: NormalisationRule(normalisation.layer_norm, channels_last=True),
    nn.RMSNorm: NormalisationRule(normalisation.rms_norm, channels_last=True),
}
# By name, so that nothing is imported for layers that nobody uses.
_RULES_BY_NAME: dict[str, Rule] = {"transformers.pytorch_utils.Conv1D": TransposedLinearRule()}
_EXPRESSIONS: dict[type[nn.Module], Expression] = {
    nn.GroupNorm: GroupNormExpression(),
    nn.LSTM: _RECURRENT,
    nn.GRU: _RECURRENT,
    nn.RNN: _RECURRENT,
    nn.MultiheadAttention: AttentionExpression(),
}


def rule_for(module: nn.Module) -> Rule | None:
    """The rule of a layer, if it has one and runs the code that the rule was written for.

    A subclass counts only if it inherits ``forward``, and every parameter it trains must be one the rule knows.
    """
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    inherited = (rule for kind, rule in _RULES.items() if isinstance(module, kind) and _runs_as(module, kind))
    rule = _RULES_BY_NAME.get(name) or next(inherited, None)
    if rule is None or not trained(module) <= set(rule.parameters):
        return None
    return rule


def expression_for(module: nn.Module) -> Expression | None:
    """The layer's re-expression, if it has one that fits and anything in it is trained."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return None
    found = (
        expression for kind, expression in _EXPRESSIONS.items() if isinstance(module, kind) and _runs_as(module, kind)
    )
    return next((expression for expression in found if expression.fits(module)), None)


def trained(module: nn.Module) -> set[str]:
    """The names of a module's own trained parameters."""
    return {name for name, parameter in module.named_parameters(recurse=False) if parameter.requires_grad}


def _runs_as(module: nn.Module, kind: type[nn.Module]) -> bool:
    return type(module).forward is kind.forward
