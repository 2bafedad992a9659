"""Runs the command line as `python -m framework`."""

import sys

from framework.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
