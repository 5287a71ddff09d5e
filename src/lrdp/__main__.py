"""The program: ``lrdp``, and ``python -m lrdp``."""

import os
import sys
from contextlib import suppress

_INTERRUPTED = 130


def main() -> None:
    """Load the command line and run it; whoever stops it while it loads is answered as later on."""
    try:
        from lrdp import cli
    except KeyboardInterrupt:
        with suppress(OSError):
            os.write(2, b"Stopped.\n")
        sys.exit(_INTERRUPTED)
    cli.main()


if __name__ == "__main__":
    main()
