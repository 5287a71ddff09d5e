"""Float64 throughout, for a copy that is compared to the last digits: what asks for float32 inside gets float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_NARROW = (torch.float16, torch.bfloat16, torch.float32)


class Widening(TorchFunctionMode):
    """While entered, every narrower type that is named in a call, and ``Tensor.float``, means float64.

    Many models normalise and weigh in float32 whatever their own type is, which would hide in its rounding what is to
    be compared.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The same call, in float64."""
        if func in (Tensor.float, Tensor.half, Tensor.bfloat16):
            return args[0].double()
        return func(*map(_wide, args), **{name: _wide(value) for name, value in (kwargs or {}).items()})


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value
