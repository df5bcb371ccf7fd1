"""Odd requests to ``planner open``: only the page's own are answered, and the server goes on."""

import json
import socket
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

from bench.robustness.attack_files import CORPUS
from bench.robustness.mutations import mutated

_WAIT = 10.0
"""Seconds until a server that says nothing counts as hanging."""
_REFUSED = {400, 404, 405, 408, 409, 411, 413, 414, 417, 431, 501, 505}
_LINES = (
    "Content-Length: 99999999999999999999", "Content-Length: -1", "Content-Length: 0x10",
    "Content-Length: 65537", "Content-Length: 3", "Content-Length: ٣", "Transfer-Encoding: chunked",
    "Expect: 100-continue", "Host: evil.example", "Origin: https://evil.example", "Host: ",
    "Content-Type: text/plain", "Connection: keep-alive", "Upgrade: h2c", ": no name", "no colon",
    " folded", "X: " + "x" * 70_000, *(f"X-{number}: 1" for number in range(120)),
)  # fmt: skip
_TARGETS = (
    "/", "//", "/TOKEN", "/TOKEN/../../etc/passwd", "/TOKEN/..%2f..%2fetc/passwd", "*",
    "/TOKEN/state?x=1", "/TOKEN/save/", "/TOKEN//", "/token/save", "http://127.0.0.1/TOKEN/save",
    "/TOKEN/\x00", "/" + "A" * 32 + "/save", "/" + "x" * 70_000, "/TOKEN/%73ave", "/☃/",
)  # fmt: skip
_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH", "get",
            "PRI", "", "\x16\x03\x01", "x" * 3000)  # fmt: skip
_BODIES = (
    "", "{}", "[]", "null", "1", '"', "[" * 60_000, '{"table": 1}', '{"table": "item"}',
    '{"table": "item", "block": 1e308, "rank": 0}', '{"table": "item", "block": 0, "rank": -1}',
    '{"table": "item", "block": true, "rank": NaN}', '{"table": "item", "block": [0], "rank": {}}',
    '{"table": "item", "block": 99999999999999999999, "rank": 99999999999999999999}',
    '{"table": "item", "block": 0, "rank": 18446744073709551616}', '{"table": null, "block": 0}',
    '{"table": "\\ud800", "block": 0, "rank": 0}', "{" + '"a":' * 500, "\xff\xfe", "9" * 5000,
)  # fmt: skip


def odd(data: bytes, others: Sequence[bytes], rng: Random) -> bytes:
    """Return a request with another method, target, headers or body, or any bytes changed."""
    if rng.random() < 0.3:
        return mutated(data, others, rng)
    head, _, body = data.decode().partition("\n\n")
    (method, target, version), *lines = head.split("\n")[0].split(" "), *head.split("\n")[1:]
    for _ in range(rng.randint(1, 3)):
        action = rng.randrange(6)
        if action == 0:
            method = rng.choice(_METHODS)
        elif action == 1:
            target = rng.choice(_TARGETS)
        elif action == 2:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(_LINES))
        elif action == 3 and lines:
            del lines[rng.randrange(len(lines))]
        elif action == 4:
            body = rng.choice(_BODIES)
        else:
            version = rng.choice(("HTTP/1.1", "HTTP/0.9", "HTTP/9.9", "HTTP/1", "", "HTTP/1.1 x"))
    return "\n".join([f"{method} {target} {version}", *lines, "", body]).encode()


@cache
def _judged() -> tuple[Any, Any]:
    from planner.files.plans import load_plan_file
    from planner.verbs.loading import judge

    file = load_plan_file(CORPUS / "plan.json")
    return file, judge(file)


def served(path: Path) -> object:
    """Send a request to a server of its own, and look at what comes of it.

    Raises
    ------
    ValueError
        It was answered though it is none of the page's, or the server fell over.

    """
    from planner.editing.edit_server import EditServer
    from planner.editing.edits import EditSession

    class Watched(EditServer):
        """Keeps what handlers raise."""

        def handle_error(self, request: object, address: object) -> None:
            super().handle_error(request, address)
            raised.append(sys.exc_info()[1])

    raised: list[BaseException | None] = []
    file, planned = _judged()
    session = EditSession(file=file, planned=planned, target=path.parent / "saved.json")
    with Watched(session) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.002}, daemon=True)
        thread.start()
        try:
            request = _filled(path.read_bytes(), server)
            _check(_sent(request, server.server_port), request, server, path)
            _check_alive(server)
        finally:
            server.shutdown()
    unexpected = [each for each in raised if not isinstance(each, ConnectionError)]
    if unexpected:
        raise ValueError(f"a handler raised {type(unexpected[0]).__name__}") from unexpected[0]
    return raised


def _filled(request: bytes, server: Any) -> bytes:  # noqa: ANN401 - an EditServer
    """Put the token, the host and the length in, and the line ends of HTTP."""
    head, gap, body = request.partition(b"\n\n")
    for word, text in (("TOKEN", server.token), ("HOST", server.hosts[0]), ("LENGTH", len(body))):
        head = head.replace(word.encode(), str(text).encode())
    return head.replace(b"\n", b"\r\n") + (b"\r\n\r\n" if gap else b"") + body


def _sent(request: bytes, port: int) -> bytes:
    """Return the whole answer to a request, of whatever bytes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=_WAIT) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(2**16):
                answer += piece
        except ConnectionError:  # it was answered before all of it was read
            pass
        except TimeoutError:
            raise ValueError("the server says nothing") from None
    return answer


def _check(answer: bytes, request: bytes, server: Any, path: Path) -> None:  # noqa: ANN401
    # to HTTP/0.9 an answer has no status
    status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0
    known = f"/{server.token}/".encode() in request and server.hosts[0].encode() in request
    if status == 200 and not known:
        raise ValueError("a request without the token or the host was answered")
    if status not in {0, 200} | _REFUSED:
        raise ValueError(f"status {status}")
    token = server.token.encode()  # a page that says what was wrong with a request quotes it
    if b"root:" in answer or (token in answer and token not in request):
        raise ValueError("another file, or the token, was shown")
    written = {each.name for each in path.parent.iterdir()} - {path.name}
    if not written <= {"saved.json"} or (written and not known):
        raise ValueError(f"{written} were written")


def _check_alive(server: Any) -> None:  # noqa: ANN401 - an EditServer
    good = _filled(
        b"POST /TOKEN/state HTTP/1.1\nHost: HOST\nContent-Type: application/json\n"
        b"Content-Length: LENGTH\n\n{}",
        server,
    )
    answer = _sent(good, server.server_port)
    if not answer.startswith(b"HTTP/1.0 200 ") or "ranks" not in json.loads(
        answer.partition(b"\r\n\r\n")[2]
    ):
        raise ValueError("the page's own request is not answered any more")
