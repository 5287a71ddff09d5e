"""Slow independent truths: nothing here imports from lrdp, and lrdp imports nothing from here."""
