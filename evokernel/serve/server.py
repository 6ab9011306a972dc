"""Owns the MCP server: our tools and resources on the official SDK, over standard streams.

Standard output carries the protocol and nothing else: the SDK moves it aside while it serves, so
that whatever a library prints goes to standard error, and everything that measures has a process of
its own.
"""

import logging
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from evokernel import __version__
from evokernel.config import MemoryConfig
from evokernel.external import OPTION
from evokernel.serve.office import Office
from evokernel.serve.refusal import Refusal, refusal_of
from evokernel.serve.resources import PLACES, SCHEME, Shelf
from evokernel.serve.tools import TOOLS
from evokernel.task.constants import nearest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INSTRUCTIONS = """\
EvoKernel judges kernels that replace PyTorch operators, and remembers what helped. To make a task \
fast yourself: call `recall` with the task, write a kernel as its `guide` says, call `evaluate`, \
read the answer, change one thing, evaluate again; at the end call `best` with `confirm`. To let \
EvoKernel do it: `start_run`, then `run_status`. Every tool answers with structured content; a \
call that is refused says in `error` which argument is at fault, what was expected, what to do."""

Context = ServerRequestContext[Any, Any]


def serve(runs: Path, memory: MemoryConfig) -> None:
    """Serve one client on standard input and output until it hangs up.

    Args:
        runs: Folder that receives run folders.
        memory: Which memory learns, and how it chooses.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    anyio.run(_serve, runs, memory)


async def _serve(runs: Path, memory: MemoryConfig) -> None:
    server = built(runs, memory)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def built(runs: Path, memory: MemoryConfig) -> "Server[Office]":
    """The server, not connected to anybody yet."""

    @asynccontextmanager
    async def office(_: Any) -> "AsyncIterator[Office]":
        opened = Office(runs, memory)
        try:
            yield opened
        finally:
            await opened.close()

    shelf = Shelf(runs, memory)

    async def read(
        context: Context, asked: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await _read(shelf, str(asked.uri))

    server: Server[Office] = Server(
        "evokernel",
        version=__version__,
        title="EvoKernel",
        instructions=INSTRUCTIONS,
        lifespan=office,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=read,
    )
    server.middleware.clear()  # telemetry of the SDK's own
    return server


# -- tools -----------------------------------------------------------------------------------------


async def _list_tools(
    context: Context, asked: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.takes.model_json_schema(),
                output_schema=tool.answers.model_json_schema(mode="serialization"),
                annotations=types.ToolAnnotations(
                    read_only_hint=tool.is_read_only,
                    destructive_hint=False,
                    idempotent_hint=tool.is_read_only or tool.is_idempotent,
                    open_world_hint=False,
                ),
            )
            for name, tool in TOOLS.items()
        ]
    )


async def _call_tool(context: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
    """Carry a call out; what goes wrong is data for the caller, never a broken connection."""
    tool = TOOLS.get(asked.name)
    if tool is None:
        return _refused(_unknown(asked.name))
    office: Office = context.lifespan_context
    office.author = _author(context)
    try:
        call = tool.takes.model_validate(asked.arguments or {})
        done = await getattr(office, asked.name)(call, _teller(context))
    except Exception as error:
        refusal = refusal_of(error)
        if refusal.kind == "InternalError":
            sys.excepthook(type(error), error, error.__traceback__)
        return _refused(refusal)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=done.model_dump_json(indent=1))],
        structured_content=done.model_dump(mode="json"),
    )


def _refused(refusal: Refusal) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=refusal.in_words())],
        structured_content={"error": refusal.model_dump(mode="json")},
        is_error=True,
    )


def _unknown(name: str) -> Refusal:
    return Refusal(
        kind="UnknownTool",
        argument=None,
        message=f"there is no tool `{name}`.{nearest(name, TOOLS)}",
        expected=", ".join(f"`{known}`" for known in TOOLS),
        advice="Call one of them.",
    )


def _author(context: Context) -> str:
    """Who the client says it is."""
    asked = context.session.client_params
    return f"{OPTION}/{asked.client_info.name}" if asked and asked.client_info else OPTION


def _teller(context: Context) -> Callable[[str], Any]:
    """Passes what takes time on as progress; a client that asked for none is not told."""
    count = 0

    async def tell(text: str) -> None:
        nonlocal count
        count += 1
        await context.session.report_progress(count, None, text)

    return tell


# -- resources -------------------------------------------------------------------------------------


async def _list_resources(
    context: Context, asked: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    fixed = [place for place in PLACES if "{" not in place.uri]
    return types.ListResourcesResult(
        resources=[
            types.Resource(
                uri=f"{SCHEME}{place.uri}", name=place.name, description=place.description
            )
            for place in fixed
        ]
    )


async def _list_templates(
    context: Context, asked: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template=f"{SCHEME}{place.uri}", name=place.name, description=place.description
            )
            for place in PLACES
            if "{" in place.uri
        ]
    )


async def _read(shelf: Shelf, uri: str) -> types.ReadResourceResult:
    try:
        page = await anyio.to_thread.run_sync(shelf.read, uri)
    except Exception as error:
        refusal = refusal_of(error)
        code = types.INVALID_PARAMS
        if refusal.kind == "InternalError":
            sys.excepthook(type(error), error, error.__traceback__)
            code = types.INTERNAL_ERROR
        data = {"error": refusal.model_dump(mode="json")}
        raise MCPError(code=code, message=refusal.in_words(), data=data) from error
    content = types.TextResourceContents(uri=uri, mime_type=page.mime, text=page.text)
    return types.ReadResourceResult(contents=[content])
