"""The tables of docs/results/paper.md and the pages beside it, made from the studies' own results."""
