"""Owns the command line: one file per command group, no logic."""

import sys

from evokernel import __version__


def main() -> None:
    """Answer `--version` and `--help`; the commands come with their own files."""
    if "--version" in sys.argv[1:]:
        print(f"evokernel {__version__}")
        return
    print("usage: evokernel [--version] [--help]")
