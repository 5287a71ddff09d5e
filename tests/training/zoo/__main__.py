"""The zoo from the command line: what the gate says of every model, whether it trains exactly, and what that costs."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from pathlib import Path

import torch
import transformers

from training.zoo import ZOO
from training.zoo.contest import contest
from training.zoo.keeper import judge
from training.zoo.table import Row, written

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m training.zoo",
        description="Judge public models, measure them beside Opacus, and write docs/results/zoo.md and zoo.json.",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(ZOO), help="these alone; writes no table")
    parser.add_argument("--rounds", type=int, default=5, help="of measuring time; 0 measures nothing (5)")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON, too")
    given = parser.parse_args()
    quiet()
    found = [examined(name, given.rounds) for name in given.only or ZOO]
    if given.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    if not given.only:
        (RESULTS / "zoo.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "zoo.md").write_text(written(found), encoding="utf-8")


def quiet() -> None:
    """One thread, and no word of what models and baselines have to say."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    transformers.logging.set_verbosity_error()


def examined(name: str, rounds: int) -> Row:
    entry = ZOO[name]
    verdict = judge(entry)
    row: Row = {
        "name": name,
        "family": entry.family,
        "frozen": list(entry.frozen),
        "verdict": verdict.word,
        "says": verdict.alone or verdict.refused,
        "exact": verdict.exact,
        "error": verdict.error,
        "contest": contest(entry, verdict.task, rounds) if rounds else {},
    }
    sys.stderr.write(f"{name:40} {verdict.word:12} {'exact' if verdict.exact else '':6} {row['says'][:100]}\n")
    return row


if __name__ == "__main__":
    main()
