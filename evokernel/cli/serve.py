"""Owns `evokernel serve`: doors for programs that are authors themselves."""

import sys
from importlib.util import find_spec

from evokernel.cli import options
from evokernel.cli.faults import complain
from evokernel.cli.groups import group

app = group("Serve other programs, such as coding agents.", "evokernel serve mcp")


@app.callback()
def _options() -> None: ...


@app.command()
def mcp(
    runs_dir: options.RunsDir = options.RUNS,
    memory: options.MemoryOrNone = None,
    policy: options.Policy = None,
) -> None:
    """Serve one client on standard input and output until it hangs up.

    A coding agent starts this by itself; docs/mcp.md says what to put into its configuration.

    Example: evokernel serve mcp --runs-dir /data/runs
    """
    from evokernel.cli.memory_place import path
    from evokernel.config import MemoryConfig
    from evokernel.errors import ConfigError

    if find_spec("mcp") is None:
        raise ConfigError(
            "`evokernel serve mcp` needs the package `mcp`, which is not installed; install the "
            "extra `mcp` (`pip install 'evokernel-agent[mcp]'`)"
        )
    if sys.stdin.isatty():
        complain(
            "serving MCP on standard input and output, where a client is expected and not a "
            "terminal; docs/mcp.md says what starts it. Ctrl-C ends it"
        )
    from evokernel.serve.server import serve

    is_none = memory == "none"
    config = MemoryConfig(
        path=None if is_none else path(memory),
        policy=policy or ("none" if is_none else "evokernel"),
    )
    serve(runs_dir.resolve(), config)
