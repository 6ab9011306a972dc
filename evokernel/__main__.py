"""Runs the command line: `python -m evokernel`."""

from evokernel.cli import main

if __name__ == "__main__":
    main()
