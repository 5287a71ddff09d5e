"""One rule per kind of layer: how to get its per-example gradients without computing them one by one."""

from lrdp.training.layers.batched import Batched
from lrdp.training.layers.fallback import Fallback
from lrdp.training.layers.protocol import Call, Expression, Rule
from lrdp.training.layers.refusals import refusal
from lrdp.training.layers.registry import expression_for, rule_for, trained

__all__ = ["Batched", "Call", "Expression", "Fallback", "Rule", "expression_for", "refusal", "rule_for", "trained"]
