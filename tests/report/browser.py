"""A headless Chromium for tests of pages, spoken to by the WebDriver protocol, which is plain HTTP.

``browser()`` gives one where Chromium and its driver are installed (Debian's packages ``chromium``
and ``chromium-driver``); a test that needs it is skipped where they are not.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
PATIENCE = 30.0
"""Seconds after which a browser that does not answer is given up."""

needs_chromium = pytest.mark.skipif(
    shutil.which("chromedriver") is None or shutil.which("chromium") is None,
    reason="needs Chromium and its driver: apt-get install chromium chromium-driver",
)


class Browser:
    """One window of one browser."""

    def __init__(self, address: str, session: str) -> None:
        self._address = f"{address}/session/{session}"

    def open(self, url: str) -> None:
        self._post("url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns."""
        return self._post("execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, seconds: float = PATIENCE) -> Any:
        """The value of an expression, once that is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = self.run(f"return {condition}")
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{condition} is still false; the log: {self.log()}")

    def press(self, keys: str) -> None:
        """Type keys to whatever has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._post("actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def click(self, x: float, y: float) -> None:
        """Click at a place of the window."""
        steps: list[dict[str, Any]] = [
            {"type": "pointerMove", "x": round(x), "y": round(y), "origin": "viewport"},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        mouse = {"type": "pointer", "id": "mouse", "actions": steps}
        self._post("actions", {"actions": [mouse]})

    def resize(self, width: int, height: int) -> None:
        self._post("window/rect", {"width": width, "height": height})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._get("screenshot")))

    def log(self) -> list[str]:
        """What the page wrote to the console, errors above all."""
        return [entry["message"] for entry in self._post("se/log", {"type": "browser"})]

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        return self._post("goog/cdp/execute", {"cmd": name, "params": parameters})

    def _post(self, name: str, value: Any) -> Any:
        return call(f"{self._address}/{name}", value)

    def _get(self, name: str) -> Any:
        return call(f"{self._address}/{name}")

    def close(self) -> None:
        call(self._address, method="DELETE")


def call(url: str, value: Any = None, method: str | None = None) -> Any:
    """One request of the protocol."""
    data = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.loads(response.read())["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(json.loads(error.read())["value"]["message"]) from None


@contextmanager
def browser(width: int = 1280, height: int = 800, *, dark: bool = False) -> Iterator[Browser]:
    """A browser with a profile of its own, ended at the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        driver = subprocess.Popen(
            ["chromedriver", f"--port={port}", "--log-level=OFF"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(address)
            arguments = [*ARGUMENTS, f"--user-data-dir={folder}", f"--window-size={width},{height}"]
            options = {"args": arguments, "binary": shutil.which("chromium")}
            wanted = {
                "alwaysMatch": {
                    "browserName": "chrome",
                    "goog:chromeOptions": options,
                    "goog:loggingPrefs": {"browser": "ALL"},
                }
            }
            session = call(f"{address}/session", {"capabilities": wanted})["sessionId"]
            found = Browser(address, session)
            found.command(
                "Emulation.setDeviceMetricsOverride",
                width=width, height=height, deviceScaleFactor=1, mobile=False,
            )  # fmt: skip
            if dark:
                found.command(
                    "Emulation.setEmulatedMedia",
                    features=[{"name": "prefers-color-scheme", "value": "dark"}],
                )
            try:
                yield found
            finally:
                found.close()
        finally:
            driver.terminate()
            driver.wait(PATIENCE)


def _wait_for(address: str) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            if call(f"{address}/status")["ready"]:
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > until:
                raise
        time.sleep(0.05)
