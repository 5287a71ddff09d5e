"""Passes that are told not to look at values, as if a compiler traced them.

Public models look where it saves a little, as at a mask that hides nothing, and know that a compiler cannot follow.
Told so, they do for every batch what they do for any. It is a request and no promise: the gate looks itself.
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
