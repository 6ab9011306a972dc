"""Owns `ChatServer`: a small chat-completions server whose replies and faults are scripted."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from evokernel.frozen import Frozen


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
    headers: dict[str, str] = {}
    """E.g. `retry-after`."""


class ChatServer:
    """Answers on a free local port, one scripted answer after the other; a context manager.

    Args:
        answers: Replies (a text stands for a whole reply) and faults, in order. A request beyond
            the last one gets status 500.

    Attributes:
        requests: The bodies of the requests, in order.
        keys: The keys that came with them.
    """

    def __init__(self, *answers: ChatAnswer | str) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self._answers = [ChatAnswer(text=a) if isinstance(a, str) else a for a in answers]
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
        with self._lock:
            index = len(self.requests)
            self.requests.append(request)
            self.keys.append(chat.headers.get("Authorization", "").removeprefix("Bearer "))
        ended = ChatAnswer(status=500, text="the script has come to its end")
        answer = self._answers[index] if index < len(self._answers) else ended
        if answer.hangs:
            self._closing.wait()
            return
        body = _body(answer, request).encode()
        chat.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            chat.send_header(name, value)
        chat.send_header("Content-Length", str(len(body)))
        chat.end_headers()
        chat.wfile.write(body)


def _body(answer: ChatAnswer, request: dict[str, Any]) -> str:
    if answer.body is not None:
        return answer.body
    if answer.status >= 400:
        fault = {"message": answer.text, "type": "scripted", "code": answer.code, "param": None}
        return json.dumps({"error": fault})
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
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


def _usage(answer: ChatAnswer, request: dict[str, Any]) -> dict[str, int]:
    prompt = sum(len(str(m["content"])) for m in request["messages"]) // 4
    completion = len(f"{answer.text or ''}{answer.reasoning}") // 4
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
