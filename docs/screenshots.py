"""Take the pictures of docs/ui.md: serve the shop of the examples, and let a browser look at it.

`make screenshots` writes them to docs/images; `make screenshots ARGS="--only runs"` writes one. The shop is copied to a
folder of its own, so that no picture shows a path of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.async_api import Browser, Page, async_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--hide-scrollbars")
PATIENCE_S = 60.0
MOST_BYTES = 120_000


@dataclass(frozen=True)
class Picture:
    """A view of the page, as one picture shows it."""

    name: str
    view: str
    shows: str
    """A text that the view has once it is complete."""
    dark: bool = False
    width: int = 1280
    height: int = 800
    press: str = ""
    """The name of a button to press first."""
    wait_ms: int = 600
    """How long what moves has to come to rest."""


PICTURES = (
    Picture("runs", "#/runs", "order-1"),
    Picture("run", "#/runs/order-1/graph", "OrderPlaced", press="Show all"),
    Picture("timeline", "#/runs/order-1/timeline", "pack", dark=True),
    Picture("loop", "#/runs/tracking-1/graph", "whereIsIt"),
    Picture("inbox", "#/inbox", "refund-1"),
    Picture("state", "#/runs/order-1/state?tick=6", "changes by this tick", dark=True),
    Picture("phone", "#/runs/refund-1/graph", "Pay back", width=390, height=844),
)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def shop(folder: Path) -> Iterator[str]:
    """Serve a copy of the shop with a run in every state. Gives the address of its page."""
    example = Path(shutil.copy(ROOT / "examples" / "showcase.py", folder))
    sys.path.insert(0, str(folder))
    import showcase

    store, port = f"sqlite:///{folder / 'shop.db'}", free_port()
    asyncio.run(showcase.seed(store))
    targets = [f"{example.name}:{name}" for name in showcase.SERVED]
    command = [sys.executable, "-m", "loom", "serve", *targets, "--store", store, "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)  # noqa: S603 - its own command
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


async def ready(url: str) -> None:
    """Return when the server takes work, and the loop with a delay has gone round a few times."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if (await asyncio.to_thread(loop_of, url)).get("iteration", 0) >= 12:
                    return
            except (urllib.error.URLError, ConnectionError):
                pass  # it does not listen yet
            await asyncio.sleep(0.2)


def loop_of(url: str) -> dict[str, int]:
    """Return how far the loop of the run `tracking-1` is."""
    with urllib.request.urlopen(f"{url}/v1/runs/tracking-1/loops", timeout=10) as answer:  # noqa: S310 - http only
        items = json.load(answer)["items"]
    return items[0] if items else {}


async def take(browser: Browser, url: str, picture: Picture) -> bytes:
    """Open a view and return its picture as PNG."""
    context = await browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.dark else "light",
        device_scale_factor=1,
        reduced_motion="reduce",
        locale="en-US",
        timezone_id="UTC",
    )
    try:
        page: Page = await context.new_page()
        await page.goto(f"{url}/ui/{picture.view}")
        if picture.press:
            await page.get_by_role("button", name=picture.press).click()
            await page.mouse.move(0, 0)
        await page.get_by_text(picture.shows).filter(visible=True).first.wait_for()
        await page.wait_for_timeout(picture.wait_ms)
        return await page.screenshot(type="png")
    finally:
        await context.close()


def packed(png: bytes) -> bytes:
    """Return a picture with at most 256 colors, which makes it a third of its size."""
    made = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(made, "PNG", optimize=True)
    return made.getvalue()


async def take_all(url: str, pictures: list[Picture], folder: Path) -> None:
    """Write all pictures, and say how large they are."""
    found = os.environ.get("LOOM_BROWSER") or next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("No browser is installed: run `make browser`.")
    await ready(url)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            for picture in pictures:
                png = packed(await take(browser, url, picture))
                if len(png) > MOST_BYTES:
                    raise SystemExit(f"{picture.name}.png has {len(png):,} bytes, more than {MOST_BYTES:,}.")
                (folder / f"{picture.name}.png").write_bytes(png)
                print(f"{picture.name}.png: {len(png):,} bytes")
        finally:
            await browser.close()


def main() -> None:
    """Take the pictures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[each.name for each in PICTURES])
    parser.add_argument("--to", type=Path, default=IMAGES, metavar="FOLDER", help="where to write them")
    arguments = parser.parse_args()
    chosen = [each for each in PICTURES if arguments.only is None or each.name in arguments.only]
    with tempfile.TemporaryDirectory(prefix="loom-") as made:
        folder = Path(made) / "shop"
        folder.mkdir()
        arguments.to.mkdir(parents=True, exist_ok=True)
        with shop(folder) as url:
            asyncio.run(take_all(url, chosen, arguments.to))


if __name__ == "__main__":
    main()
