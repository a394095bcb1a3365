"""A real Chromium, spoken to over its own protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

__all__ = ["Browser", "Page", "find_chromium", "started"]

_NAMED = {
    "Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""),
    "ArrowLeft": (37, ""), "ArrowUp": (38, ""), "ArrowRight": (39, ""), "ArrowDown": (40, ""),
}  # fmt: skip
"""Keys by name: their code, and the text that they write."""
_AXE = Path(__file__).parent / "vendor" / "axe.min.js"


def find_chromium() -> str | None:
    """Where Chromium is; None where it is not installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def started(directory: Path) -> Iterator[Browser]:
    """A browser with a profile of its own."""
    flags = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars")
    given = [*(f"--{flag}" for flag in flags), "--remote-debugging-port=0", f"--user-data-dir={directory}"]
    command = [find_chromium() or "", *given, "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        told, deadline = directory / "DevToolsActivePort", time.monotonic() + 60
        while not (told.exists() and told.read_text().count("\n")):
            assert time.monotonic() < deadline, "Chromium did not start"
            assert process.poll() is None, "Chromium ended"
            time.sleep(0.02)
        yield Browser(int(told.read_text().split("\n")[0]))
    finally:
        process.terminate()
        process.wait(30)


class Browser:
    """A running browser."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/json/new?about:blank"

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """A new tab."""
        async with httpx.AsyncClient() as client:
            opened = (await client.put(self._url)).json()
        async with connect(opened["webSocketDebuggerUrl"], max_size=None) as socket:
            page = Page(socket)
            reading = asyncio.create_task(page.read())
            try:
                for domain in ("Page", "Runtime", "Log"):
                    await page.call(f"{domain}.enable")
                yield page
                await page.call("Page.close")
            finally:
                reading.cancel()


_IS_THERE = (  # Chromium moves the focus to the element with `autofocus` in a frame after the page is complete
    "document.readyState === 'complete' && "
    "[null, document.activeElement].includes(document.querySelector('[autofocus]'))"
)


class Page:
    """A tab.

    Attributes:
        complaints: Errors that its console showed.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []

    async def read(self) -> None:
        """Take what the browser says."""
        async for text in self._socket:
            said = json.loads(text)
            if answer := self._answers.pop(said.get("id"), None):
                answer.set_result(said)
            elif said.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(said["params"]["exceptionDetails"])[:400])
            elif said.get("method") == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
                self.complaints.append(json.dumps(said["params"]["entry"])[:400])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command."""
        number = next(self._ids)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        answer = await asyncio.wait_for(self._answers[number], 60)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer.get("result", {})
        return result

    async def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str, seconds: float = 40) -> None:
        """Wait until an expression is true, over navigations."""
        deadline = time.monotonic() + seconds
        while True:
            found = await self.call("Runtime.evaluate", expression=f"!!({expression})", returnByValue=True)
            if found["result"].get("value") is True:
                return
            assert time.monotonic() < deadline, f"waited in vain for {expression}"
            await asyncio.sleep(0.02)

    async def arrive(self, expression: str) -> None:
        """Wait for the page that an expression describes, until it is all there."""
        await self.until(f"({expression}) && {_IS_THERE}")

    async def open(self, url: str) -> None:
        """Go to a page and wait until it is there."""
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href.startsWith({json.dumps(url)}) && {_IS_THERE}")

    async def look(self, *, width: int = 1280, height: int = 800, scheme: str = "light") -> None:
        """Change the window's size and the preferred colors."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def press(self, key: str) -> None:
        """Press a key: a letter, or one of those that have a name."""
        code, text = _NAMED.get(key, (0, key))
        pressed = {"key": key, "windowsVirtualKeyCode": code} if code else {"key": key}
        await self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **pressed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def keys(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            await self.press(key)

    async def tab_to(self, selector: str) -> None:
        """Press Tab until an element has the focus, which it must show."""
        for _ in range(120):
            await self.press("Tab")
            if await self.run(f"!!document.activeElement?.matches({json.dumps(selector)})"):
                outline = await self.run("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none", f"{selector} does not show its focus"
                return
        raise AssertionError(f"Tab does not reach {selector}")

    async def choose(self, selector: str, expression: str) -> None:
        """Press Enter on an element that Tab reaches, and wait for the page that an expression describes."""
        await self.tab_to(selector)
        await self.run("window.isOld = true")  # keys that this page gets while it is being left are lost
        await self.press("Enter")
        await self.arrive(f"!window.isOld && ({expression})")

    async def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one point of the window and release it at another."""
        for kind, (x, y), buttons in (("mousePressed", start, 1), ("mouseMoved", end, 1), ("mouseReleased", end, 0)):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1
            )

    async def type(self, text: str) -> None:
        """Write text where the focus is."""
        await self.call("Input.insertText", text=text)

    async def violations(self) -> list[str]:
        """What axe-core finds wrong."""
        await self.run(_AXE.read_text(encoding="utf-8") + ";0")
        found = await self.run("axe.run().then((found) => found.violations)")
        return [f"{each['id']}: {each['nodes'][0]['html'][:160]}" for each in found]

    async def screenshot(self) -> bytes:
        """What it looks like, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])
