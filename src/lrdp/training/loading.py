"""A model or a task by its name on the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from lrdp.errors import InvalidInput, LrdpError


def load(name: str, *kinds: type) -> Any:
    """The model, or one of these kinds, that ``MODULE:NAME`` names or makes; the working directory comes first."""
    module_name, found, attribute = name.partition(":")
    if not (module_name and found and attribute):
        raise InvalidInput(f"a model or a task is named MODULE:NAME, as in 'net:Classifier', got {name!r}.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        named = getattr(importlib.import_module(module_name.removesuffix(".py").replace("/", ".")), attribute)
        return _made(named, name, (nn.Module, *kinds))
    except ImportError as reason:
        raise InvalidInput(
            f"{module_name} cannot be imported: {reason}; it is looked for in {Path.cwd()} first, then among what is "
            f"installed."
        ) from None
    except LrdpError:
        raise
    except AttributeError as reason:
        raise InvalidInput(f"{name} is not there, or cannot be made: {reason}.") from None
    except SystemExit as reason:
        raise InvalidInput(
            f"{module_name} ends the program when it is imported (sys.exit({reason.code!r})): put what it runs under "
            f"if __name__ == '__main__'."
        ) from None
    except Exception as reason:
        raise InvalidInput(f"{module_name} cannot be imported ({type(reason).__name__}: {reason}).") from reason
    finally:
        sys.path.pop(0)


def made_by(make: Callable[[], Any]) -> nn.Module:
    """The model that a task makes; whatever goes wrong, or is made instead, is said in a sentence."""
    try:
        made = make()
    except LrdpError:
        raise
    except Exception as problem:
        raise InvalidInput(f"the task's model cannot be made ({type(problem).__name__}: {problem}).") from problem
    if not isinstance(made, nn.Module):
        raise InvalidInput(f"the task's model must make a torch module alone, got {type(made).__name__}.")
    return made


def _made(named: Any, name: str, kinds: tuple[type, ...]) -> Any:
    named = getattr(named, "private_task", named)  # of an app that private_client_app made
    try:
        made = named if isinstance(named, kinds) else named()
    except TypeError as reason:
        raise InvalidInput(f"{name} must be a model or a task, or make one without arguments: {reason}.") from None
    if not isinstance(made, kinds):
        raise InvalidInput(f"{name} must be or make a model or a task, got {type(made).__name__}.")
    return made
