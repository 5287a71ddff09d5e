"""The version of this package: on the floor, where every room can say it."""

__version__ = "0.1.0"
"""As in the file names of a release, and in what reports and models say of their making."""
