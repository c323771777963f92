"""`POST /v1/chat/completions` on this machine, with faults by script."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self

NAME = "local"


@dataclass(frozen=True)
class Said:
    """One answer: its text, how it ended, and its tokens."""

    text: str
    finish: str
    prompt_tokens: int
    answer_tokens: int


class Speaks(Protocol):
    """What answers requests."""

    def say(self, messages: Any, max_tokens: int, schema: Any = None) -> Said: ...


@dataclass(frozen=True)
class Fault:
    """What a request meets in place of an answer.

    Attributes:
        status: of the response; 0 cuts the connection instead.
        body: sent as it is.
        headers: besides the usual.
        hang_s: silence before all that.
    """

    status: int = 500
    body: str = '{"error": {"message": "out of order"}}'
    headers: Mapping[str, str] = field(default_factory=dict)
    hang_s: float = 0.0


@dataclass(frozen=True)
class Seen:
    """A request that came in; its headers by lower-case name."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class LocalServer:
    """A server for as long as the `with` block runs.

    Args:
        speaker: what answers.
        faults: what the first requests meet, in their order; None answers as usual.
        port: 0 for any.
    """

    def __init__(self, speaker: Speaks, faults: Iterable[Fault | None] = (), port: int = 0) -> None:
        self.speaker, self.faults = speaker, deque(faults)
        self.seen: list[Seen] = []
        self.closing = threading.Event()
        self.most_at_once = self._now = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()

    def take(self, seen: Seen) -> Fault | None:
        """Note a request; the fault it meets, if any."""
        with self._lock:
            self.seen.append(seen)
            return self.faults.popleft() if self.faults else None

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            form = body.get("response_format") or {}
            schema = form["json_schema"]["schema"] if form.get("type") == "json_schema" else None
            room = int(body.get("max_completion_tokens") or body.get("max_tokens") or 256)
            return _completion(self.speaker.say(body["messages"], room, schema))
        finally:
            with self._lock:
                self._now -= 1


def _completion(said: Said) -> dict[str, Any]:
    message = {"role": "assistant", "content": said.text}
    return {
        "id": "local",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": NAME,
        "choices": [{"index": 0, "message": message, "finish_reason": said.finish}],
        "usage": {
            "prompt_tokens": said.prompt_tokens,
            "completion_tokens": said.answer_tokens,
            "total_tokens": said.prompt_tokens + said.answer_tokens,
        },
    }


def _handler(server: LocalServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            fault = server.take(Seen(self.path, headers, body))
            if self.path != "/v1/chat/completions":
                fault = Fault(404, '{"error": {"message": "no such path"}}')
            if fault is None:
                self._send(200, json.dumps(server.answer(body)), {})
                return
            server.closing.wait(fault.hang_s)
            if fault.status:
                self._send(fault.status, fault.body, fault.headers)

        def _send(self, status: int, body: str, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            raw = body.encode()
            whole = {"Content-Type": "application/json", "Content-Length": str(len(raw)), **headers}
            for name, value in whole.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    return Handler
