"""A whole federation on one machine, for tests, studies and demonstrations."""
