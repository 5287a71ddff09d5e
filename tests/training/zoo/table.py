"""The zoo as a page."""

from __future__ import annotations

from collections import Counter
from typing import Any

Row = dict[str, Any]
_HEAD = """# The zoo

Public architectures in tiny random configurations, as people bring them: in float32, in train mode, with dropout.
Made by `make zoo`; the same in figures is in [zoo.json](zoo.json).

The verdict is on train mode. *Exact* means: without dropout, each example's gradient, and sums of clipped ones, equal
those of separate plain backward passes in float64, at three sets of weights and on records that the gate did not see
(to 1e-6 of the norm for weights in float64, and 2e-3 in float32; Mixtral has no float64: float32 alone).
*Together* is one backward pass by the layers' rules; *one by one* is a plain pass for each example, for the reason
given. † Parameters that no record reaches are frozen; as it comes the model is refused, and the sentence names them.
Time and memory are multiples of plain SGD's for a step of 32 examples, – where nothing was measured; our time includes
secure noise, memory does not (4 MB for any model). Models this small spend their time between operations, not in them:
for real sizes see [training.md](training.md).

"""
_COLUMNS = "| model | verdict | exact | time, memory | Opacus hooks | Opacus ghost |\n|---|---|---|---|---|---|\n"


def written(rows: list[Row]) -> str:
    """Figures in sum, a table for each family, and every reason in full."""
    families = dict.fromkeys(row["family"] for row in rows)
    tables = [f"## {family}\n\n{_COLUMNS}{_lines(rows, family)}" for family in families]
    return _HEAD + _summary(rows) + "\n".join(tables) + "\n" + _reasons(rows)


def _summary(rows: list[Row]) -> str:
    words = Counter(row["verdict"] for row in rows)
    trained = [row for row in rows if row["verdict"] != "refused"]
    exact = sum(row["exact"] for row in trained)
    return (
        f"{len(rows)} models: {words['together']} train together, {words['one by one']} one by one, {words['refused']} "
        f"are refused. Of the {len(trained)} that train, {exact} train exactly; accepted and wrong: "
        f"{len(trained) - exact}.\n\n"
    )


def _lines(rows: list[Row], family: str) -> str:
    return "".join(_line(row) for row in rows if row["family"] == family)


def _line(row: Row) -> str:
    figures = " | ".join(_ratios(row["contest"].get(name, {})) for name in ("ours", "opacus hooks", "opacus ghost"))
    exact = "–" if row["verdict"] == "refused" else "yes" if row["exact"] else "**no**"
    mark = "†" if row["frozen"] else ""
    return f"| {row['name']}{mark} | {row['verdict']} | {exact} | {figures} |\n"


def _ratios(found: dict[str, Any]) -> str:
    if "fails" in found:
        return f"fails: {found['fails']}"
    return f"{found['time']:.1f}, {found['memory']:.1f}" if found else "–"


def _reasons(rows: list[Row]) -> str:
    said = "".join(f"- **{row['name']}**, {row['verdict']}: {row['says']}\n" for row in rows if row["says"])
    return f"## Why\n\n{said}"
