"""A page in headless Chromium, which a test controls by the DevTools protocol over two pipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe")
CHUNK: Final = 1 << 16


def chromium() -> str:
    """Returns the path of the browser. Skips the test if there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs chromium: apt-get install chromium")
    return found


class Browser:
    """A browser with one page.

    Attributes:
        events: the events of the page so far: (name, parameters).
    """

    def __init__(self, folder: Path) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._rest = b""
        self._number = 0
        self._session = ""
        with ExitStack() as parents, ExitStack() as childs:
            requests, self._write = os.pipe()
            self._read, answers = os.pipe()
            for fd in (self._write, self._read):
                parents.callback(os.close, fd)
            for fd in (requests, answers):
                childs.callback(os.close, fd)
            # The browser reads from 3 and writes to 4.
            script = f'exec "$0" "$@" 3<&{requests} 4>&{answers}'
            command = [chromium(), *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
            self._process = subprocess.Popen(
                ["bash", "-c", script, *command],
                pass_fds=(requests, answers),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self._parents = parents.pop_all()

    def __enter__(self) -> Self:
        made = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._parents.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol, and returns its result."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._write, json.dumps(request).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._read, CHUNK)
            assert chunk, "the browser has ended"
            self._rest += chunk
        text, _, self._rest = self._rest.partition(b"\0")
        message = dict(json.loads(text))
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message

    def open(self, path: Path, width: int, height: int) -> None:
        """Shows a file in a window of that size, and waits until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self.names():
            self._message()

    def names(self) -> list[str]:
        """Returns the names of the events so far."""
        return [name for name, _ in self.events]

    def of(self, name: str) -> list[dict[str, Any]]:
        """Returns the parameters of the events with that name."""
        return [parameters for each, parameters in self.events if each == name]

    def run(self, expression: str) -> Any:
        """Returns the value of an expression of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, x: float, y: float) -> None:
        """Clicks with the mouse at a place of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
