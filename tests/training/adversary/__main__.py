"""The search from the command line: a table of every form."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from training.adversary.search import table


def main() -> None:
    parser = argparse.ArgumentParser(description="Search for a record that moves the sum too far.")
    parser.add_argument("--seconds", type=float, default=300.0, help="for all forms together (300)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--json", metavar="FILE", help="write the table to this file as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = table(options.seconds, options.seed)
    for name, row in found.items():
        sys.stdout.write(f"{name:40} {row['tried']:>8} {row['largest']:>12.4g}  {row['move']}\n")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
