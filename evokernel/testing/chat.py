"""Owns `ChatServer`: a small chat-completions server whose replies and faults are scripted."""

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from evokernel.frozen import Frozen

DRIP_S = 0.05
"""Between two letters of an answer that drips, seconds (ours)."""


class ChatAnswer(Frozen):
    """What the server sends for one request."""

    text: str | None = ""
    """The reply; None as some models send it that spent everything on thinking."""
    finish: str = "stop"
    """`length` for a reply that was cut off, `content_filter`, ..."""
    reasoning: str = ""
    """What the model thought, beside the reply."""
    status: int = 200
    """Of HTTP; from 400 on, `text` is the message of the error."""
    code: str | None = None
    """The error's code, e.g. `context_length_exceeded`."""
    counts_tokens: bool = True
    """Whether it says how many tokens were used: four letters each."""
    body: str | None = None
    """Sent instead of all that, for a server that does not speak the protocol."""
    hangs: bool = False
    """Never answers, until the server is closed."""
    drips: bool = False
    """Sends a letter now and then, so that no time limit between two of them ever passes."""
    drops: bool = False
    """Closes the connection without an answer."""
    param: str | None = None
    """The parameter that an error names beside its message."""
    refusal: str | None = None
    """What it says where it will not answer."""
    tool_calls: tuple[tuple[str, str], ...] = ()
    """Tools that it wants used: names and arguments, as JSON."""
    cached_tokens: int = 0
    """Tokens of the prompt that it says it had kept."""
    headers: dict[str, str] = {}
    """E.g. `retry-after`."""


class ChatServer:
    """Answers on a free local port, one scripted answer after the other; a context manager.

    Args:
        answers: Replies (a text stands for a whole reply) and faults, in order. A request beyond
            the last one gets status 500.
        models: What its list of models says, by their names; None has no list.
        refuses: Parameters that it takes in no request: status 400, and no answer is used up.
        context: Tokens of prompt and limit together beyond which it does the same, four letters
            each; None is no limit.
        keeps_limit: It cuts a reply off at `max_tokens`.

    Attributes:
        requests: The bodies of the requests, in order.
        keys: The keys that came with them.
        paid: Tokens of all whole answers: what a provider would charge.
    """

    def __init__(
        self,
        *answers: ChatAnswer | str,
        models: Mapping[str, Mapping[str, Any]] | None = None,
        refuses: Sequence[str] = (),
        context: int | None = None,
        keeps_limit: bool = False,
    ) -> None:
        self.models = models
        self.refuses = tuple(refuses)
        self.context = context
        self.keeps_limit = keeps_limit
        self.paid = 0
        self.requests: list[dict[str, Any]] = []
        """What was asked, in order: the bodies as they came."""
        self.keys: list[str] = []
        """The key that came with each."""
        self._answers = [ChatAnswer(text=a) if isinstance(a, str) else a for a in answers]
        self._used = 0
        self._closing = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """What to give as base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def prompt(self, index: int) -> str:
        """The messages of one request, one after the other."""
        return "\n\n".join(str(m["content"]) for m in self.requests[index]["messages"])

    def __enter__(self) -> Self:
        server = self

        class Chat(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                """Say nothing on stderr."""

            def do_GET(self) -> None:
                server._list(self)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server._answer(self, json.loads(body))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, chat: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        answer = self._chosen(chat, request)
        if answer.hangs:
            self._closing.wait()
            return
        if answer.drops:
            chat.close_connection = True
            return
        body = _body(answer, request).encode()
        if answer.status < 400 and answer.body is None:
            self.paid += sum(
                _usage(answer, request)[n] for n in ("prompt_tokens", "completion_tokens")
            )
        self._send(chat, answer, body)

    def _chosen(self, chat: BaseHTTPRequestHandler, request: dict[str, Any]) -> ChatAnswer:
        with self._lock:
            self.requests.append(request)
            self.keys.append(chat.headers.get("Authorization", "").removeprefix("Bearer "))
            if refused := self._refused(request):
                return refused
            ended = ChatAnswer(status=500, text="the script has come to its end")
            answer = self._answers[self._used] if self._used < len(self._answers) else ended
            self._used += 1
        limit = request.get("max_tokens") or request.get("max_completion_tokens")
        if self.keeps_limit and limit and len(answer.text or "") > 4 * limit:
            cut = (answer.text or "")[: 4 * limit]
            return answer.model_copy(update={"text": cut, "finish": "length"})
        return answer

    def _refused(self, request: dict[str, Any]) -> ChatAnswer | None:
        for name in self.refuses:
            if name in request:
                text = f"Unsupported parameter: '{name}' is not supported with this model."
                return ChatAnswer(status=400, text=text, param=name)
        prompt = _prompt_tokens(request)
        asked = prompt + (request.get("max_tokens") or 0)
        if self.context is None or asked <= self.context:
            return None
        return ChatAnswer(
            status=400,
            text=f"This model's maximum context length is {self.context} tokens. However, you "
            f"requested {asked} tokens ({prompt} in the messages).",
        )

    def _list(self, chat: BaseHTTPRequestHandler) -> None:
        rows = [{"id": name, **more} for name, more in (self.models or {}).items()]
        status = 404 if self.models is None else 200
        self._send(chat, ChatAnswer(status=status), json.dumps({"data": rows}).encode())

    def _send(self, chat: BaseHTTPRequestHandler, answer: ChatAnswer, body: bytes) -> None:
        chat.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            chat.send_header(name, value)
        chat.send_header("Content-Length", str(len(body)))
        chat.end_headers()
        if not answer.drips:
            chat.wfile.write(body)
            return
        for letter in body:
            if self._closing.wait(DRIP_S):
                return
            try:
                chat.wfile.write(bytes([letter]))
            except OSError:  # whoever asked has gone
                return


def _body(answer: ChatAnswer, request: dict[str, Any]) -> str:
    if answer.body is not None:
        return answer.body
    if answer.status >= 400:
        fault = {"message": answer.text, "type": "scripted", "code": answer.code}
        fault["param"] = answer.param
        return json.dumps({"error": fault})
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.refusal:
        message["refusal"] = answer.refusal
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": f"call-{i}", "type": "function", "function": {"name": name, "arguments": text}}
            for i, (name, text) in enumerate(answer.tool_calls)
        ]
    whole: dict[str, Any] = {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "finish_reason": answer.finish, "message": message}],
    }
    if answer.counts_tokens:
        whole["usage"] = _usage(answer, request)
    return json.dumps(whole)


def _prompt_tokens(request: dict[str, Any]) -> int:
    return sum(len(str(m.get("content") or "")) for m in request["messages"]) // 4


def _usage(answer: ChatAnswer, request: dict[str, Any]) -> dict[str, Any]:
    prompt = _prompt_tokens(request)
    completion = len(f"{answer.text or ''}{answer.reasoning}") // 4
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }
