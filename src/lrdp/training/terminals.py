"""Where a backward pass may stop: at the recorded outputs beyond which no other recorded output lies."""

from __future__ import annotations

from collections.abc import Sequence

from torch.autograd.graph import GradientEdge, Node


def terminals(edges: Sequence[GradientEdge]) -> list[GradientEdge]:
    """Those of ``edges`` from which no other can be reached. On its way to them autograd passes all, and no weight."""
    recorded = {edge.node for edge in edges}
    reaches: dict[Node, bool] = {}
    for edge in edges:
        _explore(edge.node, recorded, reaches)
    return list({edge.node: edge for edge in edges if not reaches[edge.node]}.values())


def _explore(start: Node, recorded: set[Node], reaches: dict[Node, bool]) -> None:
    """Whether a recorded node lies strictly beyond each node, by depth-first search without recursion."""
    stack = [(start, False)]
    while stack:
        node, seen = stack.pop()
        if node in reaches:
            continue
        beyond = [following for following, _ in node.next_functions if following is not None]
        if seen:
            reaches[node] = any(following in recorded or reaches[following] for following in beyond)
        else:
            stack.append((node, True))
            stack.extend((following, False) for following in beyond if following not in reaches)
