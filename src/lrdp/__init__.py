"""Private federated learning that a hospital or a bank can trust."""

__version__ = "0.1.0"
