"""A headless Chromium that is driven as a person would: real keys, real mouse, real windows.

Speaks the DevTools protocol itself, over one socket: there is nothing to install but a Chromium.
"""

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket
from page import FLAGS, HUNG

CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
CODES |= {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "PageUp": 33, "PageDown": 34}


class Refused(Exception):
    """Chromium did not do what it was told."""


class Page:
    """One tab. `requests` are the addresses that it asked for, `problems` its errors."""

    def __init__(self, address: str):
        # What comes is UTF-8: to see that of every byte would take longer than all else.
        self.socket = websocket.create_connection(
            address, timeout=HUNG, suppress_origin=True, max_size=None, skip_utf8_validation=True
        )
        self.count = 0
        self.requests: list[str] = []
        self.problems: list[str] = []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol, and what it returned."""
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        end = time.monotonic() + HUNG
        while time.monotonic() < end:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.count:
                if "error" in message:
                    raise Refused(f"{method}: {message['error']}")
                return message["result"]
            self._note(message.get("method"), message.get("params", {}))
        raise AssertionError(f"{method} does not come to an end: {str(parameters)[:300]}")

    def _note(self, event: str, about: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event == "Network.loadingFailed" and not about.get("canceled"):
            self.problems.append(f"not loaded: {about['errorText']}")
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            thrown = details.get("exception", {})
            self.problems.append(thrown.get("description") or details["text"])
        elif event == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.problems.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        done = self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, condition: str, seconds: float = HUNG) -> None:
        """Until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self._holds(condition):
            assert time.monotonic() < end, f"after {seconds} s still not: {condition}"
            time.sleep(0.02)

    def _holds(self, condition: str) -> bool:
        try:
            return self.run(f"Boolean({condition})")
        except Refused:  # the page was left while it was asked
            return False

    def open(self, url: str, condition: str = "true") -> None:
        """Load a page until `condition` holds; `requests` and `problems` begin anew."""
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.requests, self.problems = [], []
        self.call("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")
        self.wait(condition)

    def window(self, width: int, height: int = 900, theme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        wishes = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def key(self, key: str) -> None:
        """Press and release one key where the focus is."""
        about = {"key": key, "code": "Space" if key == " " else key}
        about["windowsVirtualKeyCode"] = CODES[key]
        text = {"text": {"Enter": "\r", " ": " "}[key]} if key in ("Enter", " ") else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        """Write a text where the focus is."""
        self.call("Input.insertText", text=text)

    def click(self, x: float, y: float) -> None:
        self.drag((x, y), (x, y))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one place and release it at another."""
        left = {"button": "left", "buttons": 1, "clickCount": 1}
        self._mouse("mouseMoved", start)
        self._mouse("mousePressed", start, **left)
        if start != end:
            self._mouse("mouseMoved", end, button="left", buttons=1)
        self._mouse("mouseReleased", end, **left)

    def _mouse(self, kind: str, at: tuple[float, float], **about: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], **about)

    def picture(self, path: Path, whole: bool = True) -> None:
        """A picture of the page in a file."""
        done = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(done["data"]))


@contextmanager
def browser(chromium: str, folder: Path) -> Iterator[Page]:
    """One tab of a new Chromium, whose profile is in `folder`; closed at the end."""
    profile = folder / "profile"
    command = [chromium, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0"]
    with (folder / "chromium.log").open("w") as log:
        process = subprocess.Popen([*command, "about:blank"], stdout=log, stderr=log)
    try:
        port = _port(profile / "DevToolsActivePort", process, folder / "chromium.log")
        page = Page(_tab(port))
        try:
            yield page
        finally:
            page.socket.close()
    finally:
        process.terminate()
        process.wait(timeout=HUNG)


def _port(path: Path, process: subprocess.Popen, log: Path) -> str:
    """Chromium writes the port that it chose into its profile."""
    for _ in range(10 * HUNG):
        if path.exists() and (lines := path.read_text().split("\n"))[0]:
            return lines[0]
        assert process.poll() is None, log.read_text()[-2000:]
        time.sleep(0.1)
    raise AssertionError(f"Chromium did not start: {log.read_text()[-2000:]}")


def _tab(port: str) -> str:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=HUNG) as answer:
        tabs = json.load(answer)
    return next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
