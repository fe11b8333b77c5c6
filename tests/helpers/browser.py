"""Headless Chromium, spoken to over two pipes (its DevTools protocol): no driver and no further package is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

AS_THREE_AND_FOUR = """
import os, sys
reading, writing, *command = sys.argv[1:]
os.dup2(int(reading), 50), os.dup2(int(writing), 51)  # out of the way first: one of them may be 3 or 4 itself
os.dup2(50, 3), os.dup2(51, 4)
os.execv(command[0], command)
"""
"""Chromium reads from 3 and writes to 4. A process of its own puts the pipes there: JAX must not be forked."""


def program() -> str | None:
    """The browser on this machine, if there is one; EVENHAND_BROWSER may name another."""
    named = os.environ.get("EVENHAND_BROWSER")
    return named or next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One page in a browser of its own, with all that it complained about or asked a network for."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        found = program()
        assert found is not None, "there is no Chromium: apt-get install chromium"
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, our_writing = os.pipe()
        our_reading, from_browser = os.pipe()
        options = "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
        options += " disable-component-update disable-sync disable-extensions hide-scrollbars remote-debugging-pipe"
        arguments = [*(f"--{option}" for option in options.split()), f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                AS_THREE_AND_FOUR,
                str(to_browser),
                str(from_browser),
                found,
                *arguments,
            ],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._write, self._read = our_writing, our_reading
        self._buffer, self._number = b"", 0
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._read, 1 << 16)
            assert more, "the browser has gone"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def open(self, path: Path) -> None:
        """Load a file and wait until all of it is there."""
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 300
        while self.run("document.readyState") != "complete":
            assert time.monotonic() < deadline, "the page does not load"
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        """A window of so many pixels, as on a desk or a telephone."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def complaints(self) -> list[str]:
        """Errors and warnings of the page since it was opened."""
        found = []
        for event in self._events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            if event.get("method") == "Runtime.consoleAPICalled":
                found.append(str(parameters))
            if event.get("method") == "Log.entryAdded":
                found.append(str(parameters["entry"]))
        return found

    def requests(self) -> list[str]:
        """What the page asked for, besides itself and what it carries."""
        asked = [
            event["params"]["request"]["url"]
            for event in self._events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in asked[1:] if not url.startswith("data:")] + [
            u for u in asked[:1] if not u.startswith("file:")
        ]

    def picture(self, path: Path, whole: bool = True) -> None:
        """A screenshot, of the whole page or of the window."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))
