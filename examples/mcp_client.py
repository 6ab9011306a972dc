"""An author outside, in a few lines: evaluates files of kernels through the MCP server.

    python examples/mcp_client.py softmax first.py second.py ...

Each file counts as made from the most similar one before it; at the end what was claimed is
measured again in fresh processes, and the best kernel's file is named.
"""

import sys
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(
    command=sys.executable, args=["-m", "evokernel", "serve", "mcp", "--runs-dir", "runs"]
)


async def say(progress: float, total: float | None, message: str | None) -> None:
    """Show what takes time."""
    print(f"  ... {message}", file=sys.stderr)


async def call(client: Client, tool: str, **arguments: object) -> dict:
    """Call a tool; what it refuses ends the program in words."""
    result = await client.call_tool(tool, arguments, progress_callback=say)
    if result.is_error:
        sys.exit(result.content[0].text)
    return result.structured_content


async def main(task: str, files: list[str]) -> None:
    """Evaluate the files in order."""
    async with Client(SERVER) as client:
        known = await call(client, "recall", task=task)
        for shown in known["experiences"]:
            print(f"memory shows {shown['id']}: {shown['summary']}")
        for file in files:
            judged = await call(client, "evaluate", task=task, source=Path(file).read_text())
            eager = judged["speedups"].get("eager")
            speed = "" if eager is None else f", {eager['value']:.2f}x as fast as eager"
            print(f"{file}: attempt {judged['attempt']}, {judged['outcome']}{speed}")
            for line in (judged["reason"], *judged["mismatches"]):
                print(f"  {line}" if line else "", end="\n" if line else "")
        found = await call(client, "best", run=known["run"], confirm=True)
        print(f"best: attempt {found['attempt']}, confirmed: {found['confirmed']}: {found['file']}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
