"""Headless Chromium, spoken to by its DevTools protocol over two pipes: no driver, no port."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

TIMEOUT = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--mute-audio",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--window-size=1300,1000",
)
_WAIT = """new Promise((found, failed) => {
  const end = Date.now() + 30000;
  const look = () => {
    let value;
    try { value = (%s); } catch (error) { value = false; }
    if (value) found(value);
    else if (Date.now() > end) failed(new Error("it did not happen"));
    else setTimeout(look, 20);
  };
  look();
})"""


class Browser:
    """A running browser with one page."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self._write = _far_pipe()
        self._read, to_write = _far_pipe()

        def place() -> None:
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            close_fds=False,
            preexec_fn=place,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest, self._session = 0, b"", ""
        self.requests: list[str] = []
        """Addresses of all requests since the last :meth:`open`."""
        self.complaints: list[str] = []
        """What the page's console says of errors, such as violations of its policy."""

    def open(self, address: str) -> None:
        """Load a page in a fresh tab."""
        if self._session:
            self._call("Page.close")
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = ""
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.requests.clear()
        self.complaints.clear()
        self._call("Page.navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"], self.complaints)
        return answer["result"].get("value")

    def resize(self, width: int, height: int = 1000) -> None:
        """Give the window another size, with the page left open."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def wait_for(self, condition: str) -> Any:
        """The value of an expression as soon as it holds."""
        return self.evaluate(_WAIT % condition)

    def close(self) -> None:
        """End the browser."""
        self._session = ""
        self._call("Browser.close")
        self._process.wait(TIMEOUT)
        os.close(self._write)
        os.close(self._read)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], TIMEOUT)
            data = os.read(self._read, 1 << 16) if ready else b""
            assert data, "the browser does not answer"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        match message:
            case {"method": "Network.requestWillBeSent", "params": {"request": {"url": str(url)}}}:
                self.requests.append(url)
            case {"method": "Log.entryAdded", "params": {"entry": {"level": "error", "text": str(text)}}}:
                self.complaints.append(text)
            case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                self.complaints.append(json.dumps(details))
            case {"method": "Page.javascriptDialogOpening"}:
                self.complaints.append("the page opened a dialog")


def _far_pipe() -> tuple[int, int]:
    """A pipe whose ends are not where the browser's are to be."""
    ends = os.pipe()
    far = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return far[0], far[1]
