"""What was spent: one client's durable memory.

A :class:`Ledger` is one file per data set. It checks a :class:`Request` against a :class:`Policy` and the budget,
writes the charge down, and hands out the :class:`Receipt` that training needs. What it says is folded from its entries
alone.
"""

from lrdp.ledger.administration import adopt_head, rotate_key, void
from lrdp.ledger.books import Books
from lrdp.ledger.charges import State
from lrdp.ledger.choice import FilterChoice, OrdersChoice, SlotsChoice
from lrdp.ledger.heads import ChainPoint, Head
from lrdp.ledger.keys import SigningKey
from lrdp.ledger.ledger import Ledger
from lrdp.ledger.outbox import Reply
from lrdp.ledger.policy import Policy
from lrdp.ledger.policy_file import parse_policy, read_policy
from lrdp.ledger.receipt import Receipt
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.request import ReceivedModel, Request

__all__ = [
    "Books",
    "ChainPoint",
    "FilterChoice",
    "Head",
    "Ledger",
    "OrdersChoice",
    "Policy",
    "Receipt",
    "ReceivedModel",
    "Refusal",
    "Reply",
    "Request",
    "SigningKey",
    "SlotsChoice",
    "State",
    "adopt_head",
    "parse_policy",
    "read_policy",
    "rotate_key",
    "void",
]
