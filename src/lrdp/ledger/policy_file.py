"""Reading ``policy.toml`` strictly: each key known, present, of its type, within its limits, or an error with its line.

Some may be left out, and then the strictest rule holds, except for ``per_run_epsilon``, without which a server may
spend all that is left. Without ``clipped`` rows are clipped, each by itself. Without ``accountant`` a Rényi order
counts. Without ``min_clip_norm`` no clip norm but the policy's own is taken. ``server_keys``, ``min_roster`` and
``retries`` come together; without them no session is joined, and every ledger that holds an older policy is still read.
``[task]`` is for guards alone, and without ``[execution]`` the task says how many rows it takes at a time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from lrdp import files
from lrdp.accounting import MECHANISMS, Adjacency, Budget, SizedGaussian
from lrdp.errors import InvalidInput, PolicyRefused
from lrdp.ledger.policy import (
    BudgetCounting,
    BudgetRule,
    Clipped,
    Holder,
    MechanismRule,
    ModelRule,
    PeersRule,
    Policy,
    Retries,
    Scheme,
)
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.toml_text import MOST_TOML_CHARACTERS, read_toml

Value = TypeVar("Value")
OneOf = TypeVar("OneOf", bound=Enum)
_HEADER: Final = re.compile(r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=")
_TASK: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*:[A-Za-z_]\w*", re.ASCII)
_HUGE: Final = 1 << 63
_WORDS: Final = {str: "text in quotes", int: "a whole number", float: "a number", list: "a list of names"}


def read_policy(path: Path) -> Policy:
    """The policy in a file; without a file every request is refused."""
    try:
        text = files.read(path, 4 * MOST_TOML_CHARACTERS).decode("utf-8")
    except FileNotFoundError:
        raise PolicyRefused(
            f"there is no policy at {path}: without one every request is refused; write one with `lrdp init`.",
            Refusal.NO_POLICY,
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise PolicyRefused(f"the policy {path} cannot be read ({reason}): refused.", Refusal.NO_POLICY) from None
    return parse_policy(text, source=path.name)


def parse_policy(text: str, source: str) -> Policy:
    """The policy that a text states.

    >>> from lrdp.accounting import Budget, Training
    >>> from lrdp.ledger import FIXED_SIZE, draft
    >>> training = Training(
    ...     dataset_size=5000, batch_size=128, rounds=50, local_steps=10, budget=Budget(epsilon=4.0, delta=1e-6)
    ... )
    >>> holder = Holder(client="hospital-a", unit="patient", max_rows_per_unit=1)
    >>> policy = parse_policy(draft(holder, training, recipe=FIXED_SIZE).text(), source="policy.toml")
    >>> policy.mechanism.costliest.batch_size, policy.where("budget.epsilon")
    (128, 'policy.toml line 14')

    Raises:
        InvalidInput: naming the line, for anything unknown, missing, of another type or outside its limits.
    """
    reader = _Reader(source=source, tables=read_toml(text, source), lines=_lines(text))
    rules: dict[str, Any] = {
        "identity": _identity(reader),
        "budget": _budget(reader),
        "mechanism": _mechanism(reader),
        "model": _model(reader),
        "peers": _peers(reader),
        "metrics": tuple(reader.get("release.metrics", list)),
        "task": _task(reader),
        "micro_batch": reader.get("execution.micro_batch", int) if "execution" in reader.tables else None,
    }
    policy = reader.checked("execution", lambda: Policy(**rules, text=text, source=source, lines=reader.lines))
    reader.refuse_unknown()
    return policy


def _lines(text: str) -> dict[str, int]:
    """The line of each ``table`` and ``table.key``; tomllib does not say."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = header[1]
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{table}.{key[1]}", number)
    return lines


class _Reader:
    """Takes values out of parsed tables and remembers which were asked for."""

    def __init__(self, *, source: str, tables: dict[str, Any], lines: dict[str, int]) -> None:
        self.source, self.tables, self.lines = source, tables, lines
        self.known: set[str] = set()

    def get(self, name: str, kind: type[Value]) -> Value:
        table, key = name.split(".")
        self.known.add(name)
        values = self.tables.get(table)
        if not isinstance(values, dict) or key not in values:
            raise InvalidInput(f"{self.source}{self.line(table)}: [{table}] must have the key {key}, which is missing.")
        return self._typed(name, values[key], kind)

    def choice(self, name: str, kinds: type[OneOf]) -> OneOf:
        """One of a few words."""
        given, words = self.get(name, str), [kind.value for kind in kinds]
        if given not in words:
            key = name.split(".")[1]
            raise InvalidInput(
                f"{self.source}{self.line(name)}: {key} must be one of {', '.join(words)}, got {given[:80]!r}."
            )
        return kinds(given)

    def has(self, name: str) -> bool:
        """Whether an optional key is there."""
        table, key = name.split(".")
        values = self.tables.get(table)
        return isinstance(values, dict) and key in values

    def checked(self, table: str, build: Callable[[], Value], **keys: str) -> Value:
        """What ``build`` returns; its complaint with the line of the field it names: its key, or that of its name."""
        try:
            return build()
        except InvalidInput as problem:
            key = keys.get(problem.field or "", f"{table}.{problem.field}")
            raise InvalidInput(f"{self.source}{self.line(key) or self.line(table)}: {problem}") from None

    def refuse_unknown(self) -> None:
        tables = {name.split(".", 1)[0] for name in self.known}
        for table, values in self.tables.items():
            keys = [f"{table}.{key}" for key in values] if isinstance(values, dict) else [f".{table}"]
            for name in keys:
                if table not in tables or name not in self.known:
                    raise InvalidInput(
                        f"{self.source}{self.line(name if name in self.lines else table)}: the key {name.lstrip('.')} "
                        f"is not known: a rule that is not understood cannot be kept, so the policy is refused."
                    )

    def _typed(self, name: str, value: Any, kind: type[Value]) -> Value:
        if type(value) is int and not abs(value) < _HUGE:
            raise InvalidInput(f"{self.source}{self.line(name)}: {name} is a number beyond every limit.")
        # TOML's true is not a number, and 8 will do for 8.0.
        if kind is float and type(value) is int:
            value = float(value)
        items: list[object] = value if kind is list and type(value) is list else []
        fits = type(value) is kind and all(type(item) is str for item in items)
        if not fits or (kind is float and not math.isfinite(value)):
            raise InvalidInput(f"{self.source}{self.line(name)}: {name} must be {_WORDS[kind]}, got {_shown(value)}.")
        typed: Value = value
        return typed

    def line(self, name: str) -> str:
        """As an error shows it; nothing for a key that is not there."""
        line = self.lines.get(name)
        return "" if line is None else f" line {line}"


def _shown(value: object) -> str:
    try:
        return repr(value)[:80]
    except (ValueError, RecursionError):  # somewhere in it is a number of thousands of digits
        return type(value).__name__


def _identity(reader: _Reader) -> Holder:
    client, unit = reader.get("identity.client", str), reader.get("identity.unit", str)
    rows = reader.get("identity.max_rows_per_unit", int)
    clipped = reader.choice("identity.clipped", Clipped) if reader.has("identity.clipped") else Clipped.ROWS
    return reader.checked("identity", lambda: Holder(client=client, unit=unit, max_rows_per_unit=rows, clipped=clipped))


def _budget(reader: _Reader) -> BudgetRule:
    epsilon, delta = reader.get("budget.epsilon", float), reader.get("budget.delta", float)
    adjacency = reader.choice("budget.adjacency", Adjacency)
    per_run = reader.get("budget.per_run_epsilon", float) if reader.has("budget.per_run_epsilon") else epsilon
    total = reader.checked("budget", lambda: Budget(epsilon=epsilon, delta=delta))
    share = reader.checked("budget", lambda: Budget(epsilon=per_run, delta=delta), epsilon="budget.per_run_epsilon")
    named = reader.has("budget.accountant")
    counting = reader.choice("budget.accountant", BudgetCounting) if named else BudgetCounting.RENYI
    return reader.checked(
        "budget", lambda: BudgetRule(total=total, adjacency=adjacency, per_run=share, counting=counting)
    )


def _mechanism(reader: _Reader) -> MechanismRule:
    kinds = {name: kind for name, kind in MECHANISMS.items() if kind.bounds and issubclass(kind, SizedGaussian)}
    sampling = reader.get("mechanism.sampling", str)
    if sampling not in kinds:
        raise InvalidInput(
            f"{reader.source}{reader.line('mechanism.sampling')}: sampling must be one of {', '.join(kinds)}, "
            f"got {sampling!r}: only these have a constant memory and a sound bound."
        )
    kind = kinds[sampling]
    keys = {field: f"mechanism.{bound.key}" for field, bound in kind.bounds.items()}
    stated: dict[str, Any] = {field: reader.get(key, kind.numbers[field]) for field, key in keys.items()}
    clip, steps = reader.get("mechanism.clip_norm", float), reader.get("mechanism.max_steps_per_round", int)
    least = reader.get("mechanism.min_clip_norm", float) if reader.has("mechanism.min_clip_norm") else clip
    costliest = reader.checked("mechanism", lambda: kind(**stated), **keys)
    return reader.checked(
        "mechanism",
        lambda: MechanismRule(costliest=costliest, clip_norm=clip, min_clip_norm=least, max_steps_per_round=steps),
    )


def _model(reader: _Reader) -> ModelRule:
    size, weight = reader.get("model.max_bytes", int), reader.get("model.max_abs_weight", float)
    return reader.checked("model", lambda: ModelRule(max_bytes=size, max_abs_weight=weight))


def _peers(reader: _Reader) -> PeersRule:
    """An empty hash or an empty list means that none is pinned: then requests must not name one."""
    digest = reader.get("peers.registry_sha256", str)
    if not any(reader.has(f"peers.{key}") for key in ("server_keys", "min_roster", "retries", "scheme")):
        return reader.checked("peers", lambda: PeersRule(registry_sha256=digest))
    keys, fewest = tuple(reader.get("peers.server_keys", list)), reader.get("peers.min_roster", int)
    retries = reader.choice("peers.retries", Retries)
    scheme = reader.choice("peers.scheme", Scheme) if reader.has("peers.scheme") else Scheme.SKETCH
    return reader.checked(
        "peers",
        lambda: PeersRule(registry_sha256=digest, server_keys=keys, min_roster=fewest, retries=retries, scheme=scheme),
    )


def _task(reader: _Reader) -> str:
    """Which code trains is as much a rule as how: the name is read here, and imported by the guard alone."""
    if "task" not in reader.tables:
        return ""
    name = reader.get("task.module", str)
    return reader.checked("task", lambda: require_task(name))


def require_task(name: str) -> str:
    """The name, if it is one that a guard could import a task by.

    >>> require_task("package.module:task")
    'package.module:task'
    """
    if not _TASK.fullmatch(name):
        raise InvalidInput(
            f'module must be a name as in "package.module:name", got {name[:80]!r}: a guard imports its task by it.',
            field="module",
        )
    return name
