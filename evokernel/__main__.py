"""Runs the command line: `python -m evokernel`."""

import sys

from evokernel.cli import main

if __name__ == "__main__":
    sys.exit(main())
