"""The explorer's server: the report's page, live, for one person on this machine.

It listens on loopback only. Every request must carry the random token of the address that was
printed (compared in constant time), and name this very host: a page of another site that points its
own name at 127.0.0.1 (DNS rebinding) is refused, and so is one that sends from another origin.
Nothing of a request is a path, a command or code (``workbench``).
"""

from __future__ import annotations

import hmac
import json
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from monograph.errors import MonographError
from monograph.report.code import Listing
from monograph.report.data import ReportData
from monograph.report.explorer import BusyError, Explorer
from monograph.report.page import page_html

MAX_REQUEST_BYTES = 4_000_000
REQUEST_SECONDS = 20.0
"""How long a client may take to send a request."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ExplorerServer(ThreadingHTTPServer):
    """Serves one explorer at ``address``, which holds the token."""

    daemon_threads = True

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.explorer = explorer
        self.token = secrets.token_urlsafe(32)
        self.port = int(self.server_address[1])
        self.hosts = frozenset({f"127.0.0.1:{self.port}", f"localhost:{self.port}"})
        self.page = ""

    @property
    def address(self) -> str:
        """What a person opens."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def open(self) -> None:
        """Compile the model, which makes the page."""
        answer = self.explorer.open()
        listings = [Listing(stage, parts) for stage, parts in answer["listings"].items()]
        data = ReportData(answer["facts"], listings)
        self.page = page_html(data, live=f"/{self.token}/compile")


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ExplorerServer
    server_version = "Monograph"
    sys_version = ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        """The page."""
        if self._is_allowed() and self._is_at(""):
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page.encode())

    def do_POST(self) -> None:
        """An edit."""
        if not self._is_allowed() or not self._is_at("compile"):
            return
        given = self._read()
        if given is None:
            return
        try:
            found = self.server.explorer.edit(given)
        except BusyError as error:
            self._send_json(HTTPStatus.TOO_MANY_REQUESTS, {"error": str(error)})
        except MonographError as error:
            self._send_json(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": str(error)})
        else:
            self._send_json(HTTPStatus.OK, found)

    # Guards -------------------------------------------------------------------------------------

    def _is_allowed(self) -> bool:
        """Whether the request has the token, and was meant for this host."""
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        token = self.path.split("/")[1] if self.path.startswith("/") else ""
        is_ours = hmac.compare_digest(token.encode(), self.server.token.encode())
        same_origin = origin is None or origin.removeprefix("http://") in self.server.hosts
        if is_ours and host in self.server.hosts and same_origin:
            return True
        self._refuse(HTTPStatus.FORBIDDEN, "open the address that `monograph explore` printed")
        return False

    def _is_at(self, name: str) -> bool:
        if self.path == f"/{self.server.token}/{name}":
            return True
        self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        return False

    def _read(self) -> dict[str, Any] | None:
        """The body as JSON; None if it is refused."""
        if self.headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON")
            return None
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "say how long the request is")
            return None
        if int(length) > MAX_REQUEST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_REQUEST_BYTES} bytes")
            return None
        try:
            found = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "send a JSON object")
            return None
        return found

    # Answers ------------------------------------------------------------------------------------

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self.close_connection = True  # what is left of the request is not read
        self._send(status, "text/plain; charset=utf-8", f"{status.value}: {text}\n".encode())

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: the address holds the token, which belongs in no log."""
