"""A real browser to drive: headless Chromium over its DevTools protocol, with real key and mouse events."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
PATIENCE = 30.0
"""Seconds to wait for something that must come; a busy machine may need many of them."""

KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Backspace": ("Backspace", 8, ""),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    " ": ("Space", 32, " "),
}


NAVIGATED = "Inspected target navigated or closed"


class NavigatedError(Exception):
    """The page that a command was for is no longer there."""


class Tab:
    """One tab."""

    def __init__(self, address: str) -> None:
        self._socket: ClientConnection = connect(address, max_size=None)
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """A command of the protocol; notes errors of the page that arrive meanwhile."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            self._note(message)
            if message.get("id") == number:
                if message.get("error", {}).get("message") == NAVIGATED:
                    raise NavigatedError
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and parameters["entry"]["source"] in ("security", "javascript"):
            self.errors.append(parameters["entry"]["text"])

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def reload(self) -> None:
        self.call("Page.reload")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with suppress(NavigatedError):  # the page before was asked
                value = self.run(f"(() => {{ try {{ return {script} }} catch {{ return null }} }})()")
                if value:
                    return value
            time.sleep(0.03)
        raise AssertionError(f"never true: {script}\n{self.run('document.body.innerText')}\n{self.errors}")

    def text(self, selector: str) -> str:
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def key(self, *keys: str, up: bool = True) -> None:
        """Press keys one after the other, and let go of them."""
        for key in keys:
            code, number, text = KEYS.get(key, (f"Digit{key}" if key.isdigit() else f"Key{key.upper()}", ord(key.upper()[0]), key))
            event = {"key": key, "code": code, "windowsVirtualKeyCode": number}
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **event)
            if up:
                self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of an element."""
        middle = "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
        x, y = self.run(f"{middle}(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width: int, height: int, zoom: float = 1.0) -> None:
        """A window of this many screen pixels whose content is zoomed, as by Ctrl and plus."""
        shown = {"width": round(width / zoom), "height": round(height / zoom), "deviceScaleFactor": zoom}
        self.call("Emulation.setDeviceMetricsOverride", mobile=False, **shown)

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def offline(self, on: bool) -> None:
        """Pull the network cable, or plug it in again."""
        self.call("Network.emulateNetworkConditions", offline=on, latency=0, downloadThroughput=-1, uploadThroughput=-1)

    def close(self) -> None:
        self._socket.close()


class Browser:
    """A running browser with its own profile."""

    def __init__(self, port: int) -> None:
        self._port = port

    def tab(self) -> Tab:
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return Tab(json.load(answer)["webSocketDebuggerUrl"])


@contextmanager
def browsing(folder: Path) -> Generator[Browser]:
    """A headless browser; ends with the block."""
    assert CHROMIUM is not None
    process = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        chosen = folder / "profile" / "DevToolsActivePort"
        end = time.monotonic() + 2 * PATIENCE
        while not (chosen.exists() and "\n" in chosen.read_text()):
            assert process.poll() is None, f"{CHROMIUM} ended with {process.returncode}"
            assert time.monotonic() < end, "the browser did not start"
            time.sleep(0.05)
        yield Browser(int(chosen.read_text().splitlines()[0]))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
