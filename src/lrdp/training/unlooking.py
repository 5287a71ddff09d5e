"""Passes that are told not to look at values, as if a compiler traced them.

Public models look where it saves a little, such as at a mask that hides nothing, but not while a compiler traces them,
which could not follow. Told that one does, they do the same for every batch. It is a request and no promise: the gate
checks for itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def unlooking() -> AbstractContextManager[None]:
    """The context in which ``torch.compiler.is_compiling()`` says yes; none where torch has no such thing."""
    session: Any = getattr(torch.compiler, "_compile_session_context", nullcontext)
    found: AbstractContextManager[None] = session()
    return found
