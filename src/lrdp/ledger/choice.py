"""The filter's rule that was chosen when the budget was opened, as one word of the ledger's first entry.

The choice must not follow the data, so it is made once, before the first charge, and never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lrdp import limits
from lrdp.accounting import FilterRule, RenyiOrders, ReservedSlots
from lrdp.errors import InvalidInput
from lrdp.ledger.texts import decode_float, decode_history, encode_float, encode_history, within

_LONGEST_ORDERS: Final = 1 << 16


def _write_orders(rule: RenyiOrders) -> str:
    pairs = sorted(rule.weights.items())
    return " ".join(f"{encode_float(order)}={encode_float(weight)}" for order, weight in pairs)


def _read_orders(text: str) -> RenyiOrders:
    pairs = (pair.split("=", 2) for pair in within(text, _LONGEST_ORDERS).split(" "))
    return RenyiOrders(weights={decode_float(order): decode_float(weight) for order, weight in pairs})


class _RuleForm(NamedTuple):
    kind: type[FilterRule]
    write: Callable[[Any], str]
    read: Callable[[str], FilterRule]


_FORMS: Final = {
    "orders": _RuleForm(RenyiOrders, _write_orders, _read_orders),
    "slots": _RuleForm(
        ReservedSlots,
        lambda rule: encode_history(rule.slots),
        lambda text: ReservedSlots(slots=decode_history(text)),
    ),
}


def encode_choice(rule: FilterRule) -> str:
    """Its name, and what it was made of."""
    for name, form in _FORMS.items():
        if type(rule) is form.kind:
            return f"{name} {form.write(rule)}"
    raise InvalidInput(f"a filter is one of {', '.join(_FORMS)}, got {type(rule).__name__}: no ledger could read it.")


def decode_choice(text: str) -> FilterRule:
    """The rule that :func:`encode_choice` wrote."""
    name, _, rest = text.partition(" ")
    if name not in _FORMS:
        raise InvalidInput(f"a filter is one of {', '.join(_FORMS)}, got {name[:20]!r}.")
    try:
        return _FORMS[name].read(rest)
    except ValueError as problem:
        raise InvalidInput(f"the filter {limits.brief(text)} cannot be read: {problem}") from None
