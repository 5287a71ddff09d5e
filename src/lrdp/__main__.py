"""``python -m lrdp``."""

from lrdp.cli import main

main()
