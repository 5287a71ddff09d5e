"""A whole consortium on one machine: real processes, real sockets, each party in a folder of its own."""
