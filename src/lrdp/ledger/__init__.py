"""What was spent: one client's durable memory.

A :class:`Ledger` is one file per data set. It checks a :class:`Request` against a :class:`Policy` and the budget,
writes the charge down, and hands out the :class:`Receipt` that training needs. What it says is folded from its entries
alone.
"""

from lrdp.ledger.administration import adopt_head, end_participation, raise_budget, rotate_key, void
from lrdp.ledger.books import Books
from lrdp.ledger.charges import State
from lrdp.ledger.decisions import tighter, unsigned_raise
from lrdp.ledger.drafting import FIXED_SIZE, RECOMMENDED, PolicyDraft, PolicyRecipe, draft, peers_lines
from lrdp.ledger.export import VerifiedBooks, check_heads, check_key_known, verify_export, write_export
from lrdp.ledger.fleet import FleetBooks, FleetView, fleet_view
from lrdp.ledger.heads import LONGEST_HEAD, ChainPoint, Head
from lrdp.ledger.key_files import SigningKey
from lrdp.ledger.ledger import Ledger
from lrdp.ledger.opening import promised
from lrdp.ledger.outbox import Reply
from lrdp.ledger.policy import BudgetCounting, Clipped, Holder, PeersRule, Policy, Retries, Scheme
from lrdp.ledger.policy_file import parse_policy, read_policy
from lrdp.ledger.receipt import Receipt
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.reports import REPORT_LABEL, Report, read_report, report_of
from lrdp.ledger.request import ReceivedModel, Request
from lrdp.ledger.starting import Home, open_budget, replace_key, write_draft, write_policy
from lrdp.ledger.store import Store
from lrdp.ledger.summary import Summary, rounds_left, summarize
from lrdp.ledger.texts import LONGEST_LINE, encode_mechanism
from lrdp.ledger.toml_text import MOST_TOML_CHARACTERS, read_toml

__all__ = [
    "FIXED_SIZE",
    "LONGEST_HEAD",
    "LONGEST_LINE",
    "MOST_TOML_CHARACTERS",
    "RECOMMENDED",
    "REPORT_LABEL",
    "Books",
    "BudgetCounting",
    "ChainPoint",
    "Clipped",
    "FleetBooks",
    "FleetView",
    "Head",
    "Holder",
    "Home",
    "Ledger",
    "PeersRule",
    "Policy",
    "PolicyDraft",
    "PolicyRecipe",
    "Receipt",
    "ReceivedModel",
    "Refusal",
    "Reply",
    "Report",
    "Request",
    "Retries",
    "Scheme",
    "SigningKey",
    "State",
    "Store",
    "Summary",
    "VerifiedBooks",
    "adopt_head",
    "check_heads",
    "check_key_known",
    "draft",
    "encode_mechanism",
    "end_participation",
    "fleet_view",
    "open_budget",
    "parse_policy",
    "peers_lines",
    "promised",
    "raise_budget",
    "read_policy",
    "read_report",
    "read_toml",
    "replace_key",
    "report_of",
    "rotate_key",
    "rounds_left",
    "summarize",
    "tighter",
    "unsigned_raise",
    "verify_export",
    "void",
    "write_draft",
    "write_export",
    "write_policy",
]
