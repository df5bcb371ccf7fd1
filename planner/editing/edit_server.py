"""The server behind the editing page, for this machine and those who know its token."""

import sys
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import index
from secrets import token_urlsafe
from threading import Lock
from typing import Any

from costmodel.base.errors import PlannerError
from planner.editing.edit_page import edit_page
from planner.editing.edits import EditSession
from planner.files.json_text import dump_json, load_json

ADDRESS = "127.0.0.1"
MOST_BYTES = 2**16
"""Most bytes of a request, which names a table and a rank."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers that keep other sites from framing the page, reading it or learning its address."""


class EditServer(ThreadingHTTPServer):
    """Serves one plan to one user; requests change it one after the other."""

    daemon_threads = True

    def __init__(self, session: EditSession, port: int = 0) -> None:
        self.session, self.lock, self.token = session, Lock(), token_urlsafe(24)
        super().__init__((ADDRESS, port), EditHandler)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The ``Host`` headers that are ours; others come through a foreign name."""
        return (f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}")

    @property
    def url(self) -> str:
        """The page's address, with its token."""
        return f"http://{self.hosts[0]}/{self.token}/"

    def answer(self, action: str, asked: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Do what the page asks, and return the state that it then shows.

        Raises
        ------
        PlannerError
            A move is refused, or the file cannot be written.
        LookupError, TypeError, ValueError
            The request is none of the page's.

        """
        with self.lock:
            saved = ""
            if action == "move":
                self.session.move(str(asked["table"]), index(asked["block"]), index(asked["rank"]))
            elif action == "undo":
                self.session.undo()
            elif action == "save":
                saved = str(self.session.save())
            elif action != "state":
                raise LookupError(action)
            return {**self.session.state(), "saved": saved}

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base's
        """Ignore clients that hung up before the answer; report all other errors."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class EditHandler(BaseHTTPRequestHandler):
    """Answers one request; whatever is not the page's own gets nothing."""

    server: EditServer
    timeout = 30.0
    """Seconds after which a client that sends less than it announced is given up."""
    server_version = "planner"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the page."""
        if self._is_ours() and self._path() == "":
            with self.server.lock:
                page = edit_page(self.server.session)
            self._send(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"", "text/plain")

    def do_POST(self) -> None:
        """Do what is asked, and send the state that the page then shows."""
        length = self.headers.get("Content-Length", "")
        fits = length.isascii() and length.isdigit() and int(length) <= MOST_BYTES
        body = self.rfile.read(int(length)) if fits else b""
        if not self._is_ours() or not fits or self._path() is None:
            self._send(HTTPStatus.NOT_FOUND, b"", "text/plain")
            return
        try:
            answer, status = self.server.answer(self._path() or "", load_json(body)), HTTPStatus.OK
        except PlannerError as error:
            answer, status = {"error": str(error)}, HTTPStatus.CONFLICT
        except (LookupError, TypeError, ValueError):
            answer, status = {"error": "not a request of this page"}, HTTPStatus.BAD_REQUEST
        self._send(status, dump_json(answer, only_ascii=True).encode(), "application/json")

    def _is_ours(self) -> bool:
        """Return whether a request comes from the page, not from another site's.

        Other sites can neither send JSON here unasked, nor a Host or Origin of ours.
        """
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        kind = self.headers.get("Content-Type", "")
        return (
            host in self.server.hosts
            and origin in {None, f"http://{host}"}
            and (self.command == "GET" or kind == "application/json")
        )

    def _path(self) -> str | None:
        """Return the part of the path after the token; None: the token is wrong."""
        token, slash, rest = self.path.removeprefix("/").partition("/")
        known = compare_digest(token.encode(), self.server.token.encode())
        return rest if known and slash else None

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing: the address has the token in it."""
