"""The client's own code, by the name that its policy gives: never from a server, nor from the working directory."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation.client.local_task import LocalTask
from lrdp.ledger import Policy


def trusted_task(policy: Policy, code: Path) -> LocalTask:
    """The task that ``[task] module`` names, from the folder ``code`` or from what is installed.

    Guarantees: the working directory is not searched, unless it is ``code``: an app's folder cannot slip in code.
    """
    if not policy.task:
        raise InvalidInput(
            f'{policy.source} names no task: add a table [task] with the line module = "package.module:name", where '
            f"name is a LocalTask of your own code, or a function that returns one."
        )
    search_only(code)
    try:
        task = _made(policy)
    except InvalidInput:
        raise
    except Exception as problem:
        raise InvalidInput(
            f"{policy.where('task.module')}: {policy.task} failed ({type(problem).__name__}: {problem}): fix it, put "
            f"it into {code}, or name its folder with --code."
        ) from problem
    if not isinstance(task, LocalTask):
        raise InvalidInput(
            f"{policy.where('task.module')}: {policy.task} must be a LocalTask, or a function that returns one, got "
            f"{type(task).__name__}."
        )
    return task


def _made(policy: Policy) -> Any:
    module_name, _, attribute = policy.task.partition(":")
    module = importlib.import_module(module_name)
    if not hasattr(module, attribute):
        raise InvalidInput(f"{policy.where('task.module')}: {module_name} has no {attribute}.")
    named = getattr(module, attribute)
    return named if isinstance(named, LocalTask) else named()


def search_only(code: Path) -> None:
    """From now on modules come from ``code`` first, and no longer from the working directory."""
    here = files.followed(Path.cwd())
    kept = [entry for entry in sys.path if entry and files.followed(Path(entry)) != here]
    sys.path[:] = [str(files.followed(code)), *kept]
