"""Drive the system's Chromium by playwright, as a person would: with real keys and a real mouse."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Request, sync_playwright

# Milliseconds after which a browser is taken to hang. No working one comes near, on any machine.
HUNG = 600_000
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium, closed at the end. Raises `FileNotFoundError` if there is none."""
    path = find_chromium()
    if path is None:
        raise FileNotFoundError("There is no Chromium (Debian: apt install chromium).")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """One page. `requests` are the addresses that it requested, `problems` its errors."""

    def __init__(self, browser: Browser):
        self.page = browser.new_page()  # with its own context: no storage is shared
        self.page.set_default_timeout(HUNG)
        self.requests: list[str] = []
        self.problems: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", self._on_failure)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._on_message)

    def _on_failure(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"not loaded: {request.url}: {request.failure}")

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.args:  # by the browser, not by a script
            self.problems.append(f"{message.text} {message.location.get('url', '')}")

    def close(self) -> None:
        self.page.close()

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        return self.page.evaluate(script)

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        self.page.wait_for_function(f"() => {condition}")

    def open(self, url: str, condition: str = "true") -> None:
        """Load a page until `condition` holds; `requests` and `problems` begin anew."""
        self.page.goto("about:blank")
        self.requests, self.problems = [], []
        self.page.goto(url)
        self.wait(condition)

    def window(self, width: int, height: int = 900, theme: Any = "light") -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one place and release it at another."""
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end)
        self.page.mouse.up()
