"""A policy that is there already, beside what was typed: no budget is opened by rules that are not those asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from lrdp import limits
from lrdp.commands.output import say
from lrdp.commands.peers import Pins, pinned
from lrdp.errors import InvalidInput
from lrdp.integrity import require_name
from lrdp.ledger import Policy, peers_lines, promised, read_policy, require_task


class _Stated(NamedTuple):
    """A key of a policy, as in ``budget.epsilon``, and a value of it."""

    key: str
    value: Any


def keep(path: Path, given: Mapping[str, Any], pins: Pins) -> None:
    """Leave the policy there as it is, which is said; refused, with the lines to write, if it contradicts an option.

    Options agree with a policy that says the same, and those that were not typed with any.
    """
    policy = read_policy(path)
    name = given.get("client", policy.identity.client)
    require_name(name)
    if "task" in given:
        require_task(given["task"])
    peers = pinned(name, pins, policy.peers)
    say(f"{path} is kept as it is.")
    contradicted = _contradicted(policy, given)
    keys, lines = [each.key for each in contradicted], _lines(policy, contradicted)
    if peers != policy.peers:
        keys, lines = [*keys, "peers"], [*lines, *peers_lines(peers).splitlines()]
    if not keys:
        return
    say("These lines, in place of its own or added to them, would say what you typed:")
    for line in lines:
        say(line)
    raise InvalidInput(
        f"{path} says otherwise than what you typed in {', '.join(keys)}, so nothing was opened: write the lines above "
        f"into it, leave these options out, or move it away to have another one written."
    )


def require_rounds(path: Path, rounds: int) -> None:
    """Refused unless a budget by the policy there lasts for that many rounds of its costliest kind."""
    limits.whole("--rounds", rounds, 1, "a budget that lasts for no round is of no use")
    most = promised(read_policy(path)).kept().rounds
    if most < rounds:
        raise InvalidInput(
            f"{path} affords {most} rounds, fewer than --rounds {rounds}, so nothing was opened: leave --rounds out, "
            f"or raise mechanism.min_noise_multiplier."
        )


def _contradicted(policy: Policy, given: Mapping[str, Any]) -> list[_Stated]:
    """What was typed, by the key of the policy that says otherwise."""
    stated = _stated(policy).items()
    return [_Stated(says.key, given[name]) for name, says in stated if name in given and given[name] != says.value]


def _lines(policy: Policy, asked: list[_Stated]) -> list[str]:
    """Below their tables, each with where the policy says otherwise."""
    lines: list[str] = []
    for table, values in groupby(asked, key=lambda each: each.key.split(".")[0]):
        lines.append(f"[{table}]")
        for key, value in values:
            now = policy.where(key) if key in policy.lines else "a line that is not there"
            lines.append(f"{key.split('.')[1]} = {json.dumps(value, ensure_ascii=False)}  # instead of {now}")
    return lines


def _stated(policy: Policy) -> dict[str, _Stated]:
    """What a policy says, table by table, by the parameter of `lrdp init` that would have it written."""
    identity, budget, step = policy.identity, policy.budget, policy.mechanism.costliest
    return {
        "client": _Stated("identity.client", identity.client),
        "unit": _Stated("identity.unit", identity.unit),
        "rows_per_unit": _Stated("identity.max_rows_per_unit", identity.max_rows_per_unit),
        "clipped": _Stated("identity.clipped", identity.clipped),
        "epsilon": _Stated("budget.epsilon", budget.total.epsilon),
        "delta": _Stated("budget.delta", budget.total.delta),
        "accountant": _Stated("budget.accountant", budget.counting),
        "mechanism": _Stated("mechanism.sampling", step.name),
        "dataset_size": _Stated(f"mechanism.{step.bounds['dataset_size'].key}", step.dataset_size),
        "local_steps": _Stated("mechanism.max_steps_per_round", policy.mechanism.max_steps_per_round),
        "batch_size": _rows(policy),
        "task": _Stated("task.module", policy.task),
    }


def _rows(policy: Policy) -> _Stated:
    """How many rows are held in memory: those computed at a time, or else a whole batch."""
    step = policy.mechanism.costliest
    whole = [step.bounds[number].key for number in ("cap", "batch_size") if number in step.bounds]
    if policy.micro_batch is None and whole:
        return _Stated(f"mechanism.{whole[0]}", step.rows)
    return _Stated("execution.micro_batch", policy.micro_batch or step.rows)
