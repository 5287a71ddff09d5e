"""The version of this package: on the floor, where every room can say it."""

__version__ = "0.1.0"
