"""What a result depends on besides its settings: versions, machine and command."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = (
    "lrdp",
    "torch",
    "numpy",
    "scipy",
    "cryptography",
    "flwr",
    "ray",
    "opacus",
    "dp-accounting",
    "transformers",
    "peft",
    "scikit-learn",
    "numba",
    "efficientnet-lite-pytorch",
)


def surroundings() -> dict[str, Any]:
    """Versions, machine, command and day; of folders elsewhere on the machine no more than their own names."""
    return {
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "command": shlex.join(["lrdp", *map(_shown, sys.argv[1:])]),
        "day": datetime.now(UTC).date().isoformat(),
    }


def _shown(word: str) -> str:
    return Path(word).name if Path(word).is_absolute() else word


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor()
