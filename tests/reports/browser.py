"""A headless Chromium for the tests of pages: what it printed to its console, and what it asked the network for."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900")


class Browser:
    """The browser with what the tests ask of it."""

    def __init__(self, binary: str, driver: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file as a user does who clicks on it, with nothing emulated any more."""
        self.driver.get("about:blank")
        self.emulate("", "light")
        self.tell("Emulation.clearDeviceMetricsOverride")
        self.tell("Emulation.setScriptExecutionDisabled", value=False)
        self.console(), self.requests()
        self.driver.get(path.as_uri() + fragment)

    def tell(self, command: str, **arguments: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(command, arguments)

    def emulate(self, medium: str, scheme: str) -> None:
        """Show pages as on that medium (none: whatever it is), to someone who prefers that colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tell("Emulation.setEmulatedMedia", media=medium, features=features)

    def find(self, selector: str) -> list[WebElement]:
        """Return the elements of a CSS selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script: str) -> Any:
        """Return what a script returns, run as the browser's own console does, past the page's policy."""
        return self.driver.execute_script(script)

    def wait(self, script: str) -> None:
        """Wait until a script returns true, for what a page does after an event of its own."""
        WebDriverWait(self.driver, 10).until(lambda driver: driver.execute_script(script), script)

    def press(self, *keys: str) -> None:
        """Press keys wherever the focus is."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def console(self) -> list[str]:
        """Return what the console showed since it was last asked: errors, refused content, warnings."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since this was last asked, other than pages that were opened."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in asked if each.get("type") != "Document"]

    def pdf(self) -> bytes:
        """Return the page as printed on A4 paper, without backgrounds, as browsers print unless told otherwise."""
        printed = self.tell("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        return base64.b64decode(printed["data"])


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser of all tests; without one they are skipped, or fail where `CI` is set."""
    binary = next(filter(None, map(shutil.which, NAMES)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        why = "the pages are tested in Chromium: install chromium and chromedriver (Debian: chromium chromium-driver)"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    found = Browser(binary, driver)
    yield found
    found.driver.quit()
