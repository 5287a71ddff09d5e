"""For the site: examples in docstrings are shown as code, and names in roles as names.

A docstring here is read in an editor: an example begins with ``>>>``, which Markdown would take for a quotation.
"""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

_EXAMPLE: Final = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
_ROLE: Final = re.compile(r":(?:class|func|meth|mod):`([^`]+)`")


class ReadableDocstrings(griffe.Extension):
    """What griffe calls for everything that it finds."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite its docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """The same text, for Markdown."""
    fenced = _EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", docstring)
    return _ROLE.sub(r"`\1`", fenced)
