"""What was spent: one client's durable memory.

A :class:`Ledger` is one file per data set. It checks a :class:`Request` against a :class:`Policy` and the budget,
writes the charge down, and hands out the :class:`Receipt` that training needs. What it says is folded from its entries
alone.

A client writes its policy and opens its budget, once:

>>> from contextlib import closing
>>> from dataclasses import replace
>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> from lrdp.accounting import Budget, Training
>>> from lrdp.errors import Refused
>>> from lrdp.ledger import *
>>> temporary = TemporaryDirectory()
>>> home = Home(folder=Path(temporary.name))
>>> training = Training(
...     dataset_size=5000, batch_size=128, rounds=50, local_steps=10, budget=Budget(epsilon=4.0, delta=1e-6)
... )
>>> holder = Holder(client="hospital-a", unit="patient", max_rows_per_unit=1)
>>> write_draft(home, draft(holder, training, recipe=FIXED_SIZE))
>>> policy = read_policy(home.policy)
>>> ledger = open_budget(home)
>>> promised(policy).rounds, rounds_left(ledger.books, policy)
(50, 50)

It pays for each request before anything is made for it; what the policy forbids costs nothing:

>>> request = Request(
...     run="run-1",
...     round=1,
...     model=ReceivedModel(digest="0" * 64, size=1000, largest_weight=0.5),
...     config_digest="1" * 64,
...     mechanism=policy.mechanism.costliest,
...     steps=10,
...     clip_norm=1.0,
... )
>>> receipt = ledger.charge(request)
>>> receipt.redeem()  # training does
>>> reply = ledger.ready(receipt, b"the noised update")
>>> ledger.sent(reply)
>>> try:
...     ledger.charge(replace(request, round=2, steps=11))
... except Refused as refused:
...     refused.refusal is Refusal.STEPS
True

Anybody can check an export, and that it holds each head that the ledger ever signed:

>>> export = home.folder / "export.txt"
>>> _ = write_export(ledger, export)
>>> verified = verify_export(export)
>>> check_heads(export, verified, [Head.decode(reply.head)])
>>> summary = summarize(verified.books)
>>> summary.states[State.SENT], summary.rounds_left, f"{summary.spent.epsilon:.2f}"
(1, 49, '1.57')
>>> view = fleet_view(FleetBooks.of([read_report(report_of(ledger.books).signed(SigningKey.read(home.key)))]))
>>> view.rounds.tolist()
[49]

What only people may do is signed with the administrator's key, and stays in the books:

>>> lost = ledger.charge(replace(request, round=2))
>>> administrator = SigningKey.read(home.administrator)
>>> void(ledger, lost.entry, "the machine lost power before training began", administrator)
>>> backup = home.folder / "backup.db"
>>> with closing(Store(home.ledger, read_only=True)) as store:
...     store.copy_to(backup)
>>> later = ledger.charge(replace(request, round=3))
>>> with Ledger.open(backup, policy=policy, key=SigningKey.read(home.key)) as restored:
...     adopt_head(restored, ledger.head(), administrator).steps  # charged once more, at the worst case
10
>>> _ = home.policy.write_text(policy.text.replace("epsilon = 4.0", "epsilon = 6.0", 1))
>>> ledger.close()
>>> with home.open() as ledger:
...     raise_budget(ledger, "the study goes on for a year", administrator).epsilon
6.0
>>> known = verified.books.client_key
>>> new_key = replace_key(home)  # by rotate_key, with both keys on disk before
>>> check_key_known(verify_export(home.ledger), known)
>>> with home.open() as ledger:
...     rotate_key(ledger, new_key, SigningKey.generate())
...     end_participation(ledger, "the study is over", administrator)
>>> temporary.cleanup()
"""

from lrdp.ledger.administration import adopt_head, end_participation, raise_budget, rotate_key, void
from lrdp.ledger.books import Books
from lrdp.ledger.charges import State
from lrdp.ledger.decisions import policy_note, tighter
from lrdp.ledger.drafting import FIXED_SIZE, RECOMMENDED, PolicyDraft, PolicyRecipe, draft, peers_lines
from lrdp.ledger.export import VerifiedBooks, check_heads, check_key_known, verify_export, write_export
from lrdp.ledger.fleet import FleetBooks, FleetView, fleet_view
from lrdp.ledger.heads import LONGEST_HEAD, ChainPoint, Head
from lrdp.ledger.key_files import SigningKey
from lrdp.ledger.ledger import Ledger
from lrdp.ledger.opening import promised
from lrdp.ledger.outbox import Reply
from lrdp.ledger.policy import BudgetCounting, Clipped, Holder, PeersRule, Policy, Retries, Scheme
from lrdp.ledger.policy_file import parse_policy, read_policy, require_task
from lrdp.ledger.receipt import Receipt
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.reports import REPORT_LABEL, Report, read_report, report_of
from lrdp.ledger.request import ReceivedModel, Request
from lrdp.ledger.starting import Home, open_budget, replace_key, require_unopened, write_draft, write_policy
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
    "policy_note",
    "promised",
    "raise_budget",
    "read_policy",
    "read_report",
    "read_toml",
    "replace_key",
    "report_of",
    "require_task",
    "require_unopened",
    "rotate_key",
    "rounds_left",
    "summarize",
    "tighter",
    "verify_export",
    "void",
    "write_draft",
    "write_export",
    "write_policy",
]
