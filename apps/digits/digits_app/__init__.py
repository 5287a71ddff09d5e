"""Hospitals that learn to read digits together, each within a budget of its own, in rounds that each verifies."""
