"""Hospitals that learn to read digits together."""
