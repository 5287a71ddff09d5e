"""A model by its name on the command line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from torch import nn

from lrdp.errors import InvalidInput


def load_model(name: str) -> nn.Module:
    """The model that ``MODULE:NAME`` names; the working directory is searched first."""
    module_name, found, attribute = name.partition(":")
    if not (module_name and found and attribute):
        raise InvalidInput(f"a model is named MODULE:NAME, as in 'net:Classifier', got {name!r}.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        named = getattr(importlib.import_module(module_name.removesuffix(".py").replace("/", ".")), attribute)
    except ImportError as reason:
        raise InvalidInput(f"{module_name} cannot be imported: {reason}.") from None
    except AttributeError:
        raise InvalidInput(f"{module_name} has no {attribute}.") from None
    finally:
        sys.path.pop(0)
    return _made(named, name)


def _made(named: Any, name: str) -> nn.Module:
    if isinstance(named, nn.Module):
        return named
    try:
        model = named()
    except TypeError as reason:
        raise InvalidInput(f"{name} must be a model, or make one without arguments: {reason}.") from None
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"{name} must make a torch.nn.Module, got {type(model).__name__}.")
    return model
