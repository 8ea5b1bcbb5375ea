"""A schema registry on a free port of this computer, with the part of Confluent's interface that is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class Registry:
    """The schemas that have been registered: their numbers begin with 1, and each subject has them in order.

    ``asked``: the paths of the requests so far. ``refuses``: the status and message with which it refuses all requests.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.refuses: tuple[int, str] | None = None
        self.url = ""

    def add(self, subject: str, schema: str, kind: str = "AVRO", **more: Any) -> int:
        entry = {"schema": schema, "schemaType": kind, **more}
        if entry not in self.schemas:
            self.schemas.append(entry)
        number = self.schemas.index(entry) + 1
        if number not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(number)
        return number

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """The status and the answer of a request."""
        self.asked.append(path)
        if self.refuses is not None:
            return self.refuses[0], {"error_code": self.refuses[0], "message": self.refuses[1]}
        match [unquote(part) for part in urlsplit(path).path.split("/")[1:]]:
            case ["schemas", "ids", number] if int(number) <= len(self.schemas):
                return 200, self._shown(int(number))
            case ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                numbers = self.subjects[subject]
                place = len(numbers) if version == "latest" else int(version)
                of_version = {"subject": subject, "version": place, "id": numbers[place - 1]}
                return 200, {**of_version, **self._shown(numbers[place - 1])}
            case ["subjects", subject, "versions"] if body is not None:
                return 200, {"id": self.add(subject, body["schema"], body.get("schemaType", "AVRO"))}
        return 404, {"error_code": 40401, "message": "Subject not found."}

    def _shown(self, number: int) -> dict[str, Any]:
        """A schema; that of Avro is one whose kind is not said."""
        entry = self.schemas[number - 1]
        return {name: value for name, value in entry.items() if (name, value) != ("schemaType", "AVRO")}


@contextmanager
def registry() -> Iterator[Registry]:
    """A registry that runs until the end of the block."""
    one = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            one.authorizations.append(self.headers["Authorization"])
            status, answer = one.answer(self.path, body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield one
    finally:
        server.shutdown()
        server.server_close()
