"""What a person does with a page: looks, clicks, drags, types; and what can be seen from outside."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 180
"""Seconds; a process on a busy machine may take long to start."""


def wait_for(visitor: Visitor, what: Callable[[], Any]) -> Any:
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.ui import WebDriverWait

    # while a page is being replaced its elements are gone, stale, or unknown to the browser
    ignored = (WebDriverException, ValueError)
    return WebDriverWait(visitor.driver, PATIENCE, 0.2, ignored).until(lambda _: what())


def press(visitor: Visitor, selector: str) -> None:
    """Click a button once the page's script has woken it."""
    wait_for(visitor, lambda: visitor.find(selector).is_enabled())
    visitor.click(selector)


def fill(visitor: Visitor, selector: str, text: str) -> None:
    field = visitor.find(selector)
    field.clear()
    field.send_keys(text)


def start_chromium() -> Any:
    """Start Debian's Chromium without a window, with a log of what it asks the network for."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    # root in a container has no sandbox; the pages are our own
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_argument("--window-size=1300,1000")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(20)
    return driver


class Visitor:
    """A person in front of one page."""

    def __init__(self, driver: Any, screenshots: Path) -> None:
        self.driver = driver
        self._screenshots = screenshots
        self._requests: list[str] = []

    def open(self, address: str, width: int = 1280) -> None:
        """Open a page in a window of some width."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        self.driver.get(address)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        """Return the one element of a selector."""
        (element,) = self.driver.find_elements("css selector", selector)
        return element

    def all(self, selector: str) -> list[Any]:
        """Return all elements of a selector that can be seen."""
        seen = "(element) => element.checkVisibility() && element.getClientRects().length"
        return list(self.run(f"return [...document.querySelectorAll(arguments[0])].filter({seen})", selector))

    def click(self, selector: str) -> None:
        """Click, after scrolling to it."""
        element = self.find(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def chord(self, held: str, key: str) -> None:
        """Press a key while another is held."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).key_down(held).send_keys(key).key_up(held).perform()

    def drag(self, element: Any, dx: int, dy: int, aside: int = 0) -> None:
        """Drag with the mouse, from the middle of an element or from some pixels aside."""
        from selenium.webdriver.common.action_chains import ActionChains

        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        x, y = map(round, self.place(element))
        actions = ActionChains(self.driver, duration=40)
        pointer = actions.w3c_actions.pointer_action
        pointer.move_to_location(x + aside, y)
        pointer.pointer_down()
        pointer.move_to_location(x + aside + dx, y + dy)
        pointer.pointer_up()
        actions.perform()

    def paste(self) -> str:
        """Paste the clipboard into a text field of our own, and return what came out."""
        from selenium.webdriver.common.keys import Keys

        self.run("document.body.insertAdjacentHTML('beforeend', '<textarea id=pasted></textarea>')")
        field = self.find("#pasted")
        field.click()
        self.chord(Keys.CONTROL, "v")
        text = field.get_property("value")
        self.run("arguments[0].remove()", field)
        return str(text)

    def place(self, element: Any) -> tuple[float, float]:
        """Return where the middle of an element is on the screen."""
        script = "const r = arguments[0].getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]"
        x, y = self.run(script, element)
        return x, y

    def shoot(self, name: str) -> Path:
        """Keep a picture of the whole page."""
        width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 8000), "scale": 1}
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path = self._screenshots / f"{name}.png"
        path.write_bytes(base64.b64decode(picture["data"]))
        return path

    def print(self, name: str) -> bytes:
        """Print the page on A4 and keep the PDF."""
        options = {"printBackground": True, "preferCSSPageSize": True, "paperWidth": 8.27, "paperHeight": 11.69}
        content = base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", options)["data"])
        (self._screenshots / f"{name}.pdf").write_bytes(content)
        return content

    def processor_time(self) -> float:
        """Return the milliseconds of processor time that the page has used: unlike a clock, blind to other programs."""
        metrics = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return 1000 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    def requests(self) -> list[str]:
        """Return the addresses that the browser asked for since the page was opened."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._requests.append(message["params"]["request"]["url"])
        return self._requests

    def complaints(self) -> list[str]:
        """Return what the page wrote to the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]
