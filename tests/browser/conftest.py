"""The web page in Debian's Chromium, against a server with the small model or with one that says what it is told."""

import http.server
import importlib.util
import json
import pathlib
import shutil
import sys
import threading
import time

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

# Servers are started as tests/server does it.
spec = importlib.util.spec_from_file_location("server_conftest", pathlib.Path(__file__).parents[1] / "server" / "conftest.py")
servers = sys.modules["server_conftest"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(servers)
pytest_configure, start_server, server, scripted_url = servers.pytest_configure, servers.start_server, servers.server, servers.scripted_url

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SECONDS = 30


class Page:
    """A browser at the page of one server, and what people do there."""

    def __init__(self, driver):
        self.driver = driver
        self.expected_errors = ()  # parts of lines of the console that a test brings about
        self.url = None

    def open(self, url, tokens=None):
        """`tokens`: the most of an answer, where a model would go on for long."""
        self.url = url
        self.driver.get(url + "/")
        self.wait("#message")
        if tokens:
            self.set("max_tokens", str(tokens))
        return self

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def wait(self, css, seconds=SECONDS):
        """The first that is shown."""
        return self.until(lambda: next((node for node in self.all(css) if node.is_displayed()), None), css, seconds)

    def until(self, condition, what="", seconds=SECONDS):
        deadline = time.monotonic() + seconds
        while True:
            try:
                if found := condition():
                    return found
            except StaleElementReferenceException:
                pass
            assert time.monotonic() < deadline, f"not in time: {what}"
            time.sleep(0.02)

    def click(self, css):
        self.driver.execute_script("arguments[0].click()", self.until(lambda: next(iter(self.all(css)), None), css))

    def button(self, label, within=""):
        self.click(f'{within} [aria-label="{label}"]')

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def call(self, module, expression, *arguments):
        """What an expression gives in which `m` is a module of the page and `args` the arguments."""
        found = self.driver.execute_async_script(
            """const [path, expression, args, done] = [arguments[0], arguments[1], arguments[2], arguments[arguments.length - 1]];
            import(path).then(async (m) => done({value: await (%s)(m, args)})).catch((error) => done({error: `${error}`}));""" % expression,
            f"{self.url}/page/{module}", expression, list(arguments))
        assert "error" not in found, found["error"]
        return found["value"]

    def send(self, text):
        area = self.wait("#message")
        area.send_keys(text + Keys.ENTER)
        return self

    def messages(self, role):
        return [node.text for node in self.all(f".message.{role} .body")]

    def answers(self):
        return self.messages("assistant")

    def idle(self, seconds=SECONDS):
        """Until no answer is under way."""
        self.until(lambda: not self.all(".message.running") and not self.all(".send.stops") and self.all(".message.assistant .actions button"), "the end of the answer", seconds)
        return self

    def ask(self, text):
        return self.send(text).idle()

    def set(self, name, value):
        """A field of the settings, as if it was typed."""
        self.run("""const field = document.getElementById(arguments[0]); field.value = arguments[1];
                 field.dispatchEvent(new Event(field.localName === 'select' ? 'change' : 'input'));""", name, value)

    def requests(self):
        """What was asked over the network since the last call: (method, URL, body)."""
        told = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                request = message["params"]["request"]
                told.append((request["method"], request["url"], request.get("postData")))
        return told

    def last_body(self):
        return json.loads([body for method, url, body in self.requests() if method == "POST" and url.endswith("/v1/chat/completions")][-1])

    def problems(self):
        """Errors of the console that no test expects, and requests to other sites."""
        lines = [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]
        found = [line for line in lines if not any(part in line for part in self.expected_errors)]
        return found + [url for _, url, _ in self.asked if not url.startswith((self.url, "blob:", "data:", "about:"))]


def chromium():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900", "--lang=en", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(DRIVER))
    running.set_script_timeout(SECONDS)
    return running


@pytest.fixture(scope="session")
def driver():
    if not CHROMIUM or not DRIVER:
        pytest.skip("chromium and chromium-driver are not installed (scripts/packages.txt, group browser)")
    running = chromium()
    yield running
    running.quit()


@pytest.fixture
def page(driver):
    """With nothing kept by the tests before. Behind each test: no error in the console, no other site asked."""
    driver.get("about:blank")
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    for log in ("browser", "performance"):
        driver.get_log(log)
    page = Page(driver)
    page.asked = []
    read = page.requests
    page.requests = lambda: page.asked.extend(found := read()) or found
    yield page
    page.requests()
    problems = page.problems()
    if page.url:
        driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": page.url, "storageTypes": "all"})
    assert problems == []


class ToldHandler(http.server.BaseHTTPRequestHandler):
    """The page's files; to each question the bytes of `self.server.stream`, and the connection's end."""

    FOLDER = pathlib.Path(__file__).parents[2] / "src" / "server" / "page"
    TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

    def do_GET(self):
        name = "index.html" if self.path == "/" else self.path.removeprefix("/page/")
        if self.path == "/v1/models":
            self.give(b'{"object": "list", "data": [{"id": "told", "object": "model"}]}', "application/json")
        elif self.path == "/health":
            self.give(b"", "text/plain")
        elif name in {path.name for path in self.FOLDER.iterdir()}:
            self.give((self.FOLDER / name).read_bytes(), self.TYPES[pathlib.Path(name).suffix])
        else:
            self.send_error(404)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.give(self.server.stream, "text/event-stream")

    def give(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def told_server():
    """Gives the page, and as an answer what `stream` says: of servers and proxies that do wrong. Its address is `url`."""
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ToldHandler)
    running.url = f"http://127.0.0.1:{running.server_port}"
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()
