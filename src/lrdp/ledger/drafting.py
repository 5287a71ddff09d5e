"""Writing a policy with every line explained: what is written is the step that was calibrated, in all its digits."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from lrdp.accounting import (
    Adjacency,
    FixedSizeGaussian,
    PlanRecipe,
    PldAccountant,
    RenyiAccountant,
    SizedGaussian,
    Training,
    TruncatedPoissonGaussian,
)
from lrdp.errors import InvalidInput
from lrdp.ledger.policy import BudgetCounting, Holder, PeersRule

_TEMPLATE: Final = """\
# What this client allows. A server's request may be stricter, never looser. Without this file every request is refused.

[identity]
client = "{client}"
# Whom the guarantee protects, and how many rows one of them has at most. Clipped as "rows", each by itself, ε per unit
# is larger where it has more than 1. Clipped as "units", all rows of one together, ε is the unit's own, and every size
# below counts units; the task says whose each row is, LocalTask(units=…). Fixed once the ledger is opened.
unit = {unit}
max_rows_per_unit = {rows}
clipped = "{clipped}"

[budget]
# The most that may ever be spent on these records, by all servers, runs and models together.
epsilon = {epsilon!r}
# The probability that the guarantee fails: well below one over the number of records. Fixed once the ledger is opened.
delta = {delta!r}
# Neighbours differ by adding or removing one record ("add-remove") or by replacing one ("replace-one"). Fixed too.
adjacency = "add-remove"
# The most that one server may spend, over all its sessions. Leave the line out to let a server spend all.
per_run_epsilon = {epsilon!r}
# How it is counted, from the opening on: "rdp" admits every step that is allowed below and charges what it costs; "pld"
# affords more rounds, all reserved in advance, of exactly the step below (a quieter or smaller one has no place), and
# cannot be added to: a budget that may have to be raised one day is counted by "rdp".
accountant = "{counting}"

[mechanism]
{sampling}
{sizes}
# The longest gradient that one record may contribute.
clip_norm = 1.0
# The shortest that a server may ask to cut it to: a smaller one would spend the budget on updates that say nothing.
min_clip_norm = 0.1
# The least noise, over the clip norm: enough for {rounds} rounds of {local_steps} steps within epsilon.
min_noise_multiplier = {noise}
# The most local steps in one round. Every step is charged.
max_steps_per_round = {local_steps}

{execution}[model]
# Larger messages are refused before they are decoded, and so are weights that are not finite or beyond this.
max_bytes = 200_000_000
max_abs_weight = 1e4

{peers}
[release]
# What may leave besides the noised update: nothing.
metrics = []

# For `lrdp guard`: what is trained is this client's own code, wherever the app that asks for it comes from.
{task}
"""

_NO_TASK: Final = '# [task]\n# module = "package.module:name"'

_EXECUTION: Final = """\
[execution]
# The most rows of a step that are computed at a time: it decides the memory needed, and changes no figure or update.
micro_batch = {micro_batch}

"""

_PEERS: Final = """\
[peers]
# SHA-256 of the consortium's registry of keys; empty while there is none, and then no session is joined.
registry_sha256 = "{peers.registry_sha256}"
# Whose sessions are joined: the servers' Ed25519 keys, as `lrdp keys show` prints them. Empty: nobody's.
server_keys = [{server_keys}]
# The fewest participants of a round. That many must collude to forge a round for an absent client, so a majority
# of the registry is a good choice; 3 is the least, because with two each could subtract itself from the sum.
min_roster = {peers.min_roster}
# A round that somebody left is tried again with the same participants or given up ("same-roster"), or also without them
# ("smaller-roster"): then the others can see the difference of two sums, which is one noised update.
retries = "{peers.retries}"
# What the server sees: every noised update ("sketch"), or their sum alone ("exact": each participant is sent the masked
# updates of all others, so for small models). Sessions of the other kind are declined.
scheme = "{peers.scheme}"
"""


NOBODY: Final = PeersRule()


@dataclass(frozen=True, kw_only=True)
class PolicyDraft:
    """A policy before it is written: whose, for which training, by which step and how counted."""

    holder: Holder
    training: Training
    step: SizedGaussian
    counting: BudgetCounting
    peers: PeersRule = NOBODY
    task: str = ""

    def __post_init__(self) -> None:
        if not self.step.bounds:
            raise InvalidInput(
                f"a policy cannot state a step of {self.step.name}: it has no constant memory or no sound bound.",
                field="step",
            )

    def text(self) -> str:
        """The file, every line explained."""
        training, step = self.training, self.step
        return _TEMPLATE.format(
            client=self.holder.client,
            unit=json.dumps(self.holder.unit, ensure_ascii=False),  # which may have quotes of its own
            rows=self.holder.max_rows_per_unit,
            clipped=self.holder.clipped.value,
            epsilon=training.budget.epsilon,
            delta=training.budget.delta,
            counting=self.counting.value,
            sampling=_line(step.about, "sampling", f'"{step.name}"'),
            sizes="\n".join(
                _line(bound.why, bound.key, getattr(step, field))
                for field, bound in step.bounds.items()
                if field != "noise_multiplier"
            ),
            execution=self._execution(),
            rounds=training.rounds,
            local_steps=training.local_steps,
            # Whole: rounded to either side it would afford other rounds than were promised.
            noise=repr(step.noise_multiplier),
            peers=peers_lines(self.peers),
            task=f"[task]\nmodule = {json.dumps(self.task)}" if self.task else _NO_TASK,
        )

    def _execution(self) -> str:
        """Nothing, where a step has no more rows than may be held at a time."""
        most = self.training.batch_size
        return "" if self.step.rows is None or self.step.rows <= most else _EXECUTION.format(micro_batch=most)


def _line(why: str, key: str, value: object) -> str:
    """One line of the file under its comment."""
    return "\n".join([*textwrap.wrap(why, width=120, initial_indent="# ", subsequent_indent="# "), f"{key} = {value}"])


class PolicyRecipe(NamedTuple):
    """A kind of step, which says whether ``dataset_size`` is a lower or an upper bound; and how a ledger counts it."""

    kind: type[SizedGaussian]
    counting: BudgetCounting


FIXED_SIZE: Final = PolicyRecipe(FixedSizeGaussian, BudgetCounting.RENYI)
"""The paper's: batches of constant size from at least ``dataset_size`` records, and any step that is allowed."""
RECOMMENDED: Final = PolicyRecipe(TruncatedPoissonGaussian, BudgetCounting.RESERVED)
"""What a plan recommends: least noise in the same memory, for at most ``dataset_size`` records; rounds are reserved."""


def draft(
    holder: Holder, training: Training, peers: PeersRule = NOBODY, recipe: PolicyRecipe = RECOMMENDED
) -> PolicyDraft:
    """A policy that keeps the training's budget exactly, by the step of a kind with the least noise on the mean."""
    return PolicyDraft(
        holder=holder, training=training, step=_quietest(recipe, training), counting=recipe.counting, peers=peers
    )


@lru_cache(maxsize=64)
def _quietest(recipe: PolicyRecipe, training: Training) -> SizedGaussian:
    """One calibration, of a second or so, serves everybody who trains alike."""
    accountant = _ACCOUNTANTS[recipe.counting](adjacency=Adjacency.ADD_REMOVE)
    return PlanRecipe(recipe.kind, accountant).calibrated(training).mechanism


_ACCOUNTANTS: Final = {BudgetCounting.RENYI: RenyiAccountant, BudgetCounting.RESERVED: PldAccountant}


def peers_lines(peers: PeersRule) -> str:
    """The policy's table of peers, every line explained.

    >>> [line for line in peers_lines(PeersRule(min_roster=4)).splitlines() if line.startswith("min_roster")]
    ['min_roster = 4']
    """
    return _PEERS.format(peers=peers, server_keys=", ".join(f'"{key}"' for key in peers.server_keys))
