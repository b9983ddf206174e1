#!/usr/bin/env python3
"""How quick the web page is, in Debian's headless Chromium on this machine.

    bench/page.py [-r ROUNDS] [--build FOLDER] [--output FILE]

first load    from the address to the page painted and complete, with nothing in the browser's cache; of build/src/server/scripted_server,
              which serves the page as `headrace serve` does
              with it: bytes that came, requests, how far what was shown moved (layout shift), whether anything waits for another
first token   from the server's write of the first word to a frame that has it
long answer   the longest task of the browser's main thread while 10,000 tokens come (prose, lists, code, a table), as fast as the
              server sends and at 200 a second; below 50 ms the browser reports none
Appends a row each to bench/results/page.jsonl. Wants the packages of tests/requirements.txt (./test makes build/venv)."""

import argparse
import contextlib
import importlib.util
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/peers"))
import compare  # noqa: E402

spec = importlib.util.spec_from_file_location("browser_conftest", ROOT / "tests/browser/conftest.py")
browser = sys.modules["browser_conftest"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(browser)

TASK_MS = 50  # shorter ones are not reported (W3C Long Tasks)
WATCH_TASKS = """window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((each) => each.duration))).observe({entryTypes: ['longtask']});"""
# The frame behind the one in which the text is laid out has been painted.
WATCH_TEXT = """window.painted = null;
new MutationObserver((changes, observer) => {
  if (!document.querySelector('.message.assistant .markdown')?.textContent.includes('Hello')) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => (window.painted = performance.timeOrigin + performance.now())));
}).observe(document.body, {subtree: true, childList: true, characterData: true});"""


def event(text, finish=None):
    return ("data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}) + "\n\n").encode()


def long_answer():
    """10,000 words and more, about a token each."""
    prose = "".join(f"Word {i} of a **long** answer with `code` in it.\n{'' if i % 7 else chr(10)}" for i in range(450))
    items = "".join(f"- item {i} with [a link](https://example.org/{i})\n" for i in range(150))
    code = "```python\n" + "".join(f"def f{i}(x):\n    return x + {i}  # why\n" for i in range(250)) + "```\n"
    table = "| a | b |\n|---|---|\n" + "".join(f"| {i} | {i * i} |\n" for i in range(100))
    return re.findall(r"\s*\S+\s?", f"{prose}\n{items}\n{code}\n{table}\n{prose}")[:10000]


class Paced(browser.ToldHandler):
    """The page; as an answer `server.pieces`, each after a pause. When the first was written: `server.written` (seconds)."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        time.sleep(self.server.silence)
        self.server.written = time.time()
        begun = time.perf_counter()
        for number, piece in enumerate(self.server.pieces):
            if self.server.rate:
                time.sleep(max(0, begun + number / self.server.rate - time.perf_counter()))
            self.wfile.write(event(piece))
            self.wfile.flush()
        self.wfile.write(event("", "stop") + b"data: [DONE]\n\n")


def paced_server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Paced)
    server.url = f"http://127.0.0.1:{server.server_port}"
    server.silence, server.rate, server.pieces = 0, 0, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@contextlib.contextmanager
def scripted(build):
    """The address of a server with the page."""
    with tempfile.NamedTemporaryFile("w") as script:
        script.write("Hello.")
        script.flush()
        child = subprocess.Popen([build / "src/server/scripted_server", script.name], stdout=subprocess.PIPE, text=True)
        try:
            yield re.search(r"listening on (\S+)", child.stdout.readline())[1]
        finally:
            child.kill()
            child.wait()


def first_loads(driver, build, rounds):
    found = []
    with scripted(build) as url:
        for _ in range(rounds):
            driver.get("about:blank")
            driver.execute_cdp_cmd("Network.clearBrowserCache", {})
            page = browser.Page(driver).open(url)
            page.until(lambda: page.run("return performance.getEntriesByName('first-contentful-paint').length"))
            found.append(page.run("""const [load] = performance.getEntriesByType('navigation');
              return Math.max(load.loadEventEnd, performance.getEntriesByName('first-contentful-paint')[0].startTime)"""))
    return found


def load_facts(driver, build):
    """What else one load is: {what: number}."""
    with scripted(build) as url:
        driver.get("about:blank")
        driver.execute_cdp_cmd("Network.clearBrowserCache", {})
        page = browser.Page(driver).open(url)
        time.sleep(1)
        return page.call("words.js", """async () => {
          const entries = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
          const shifts = await new Promise((resolve) => {
            new PerformanceObserver((list) => resolve(list.getEntries())).observe({type: 'layout-shift', buffered: true});
            setTimeout(() => resolve([]), 500);
          });
          return {bytes: entries.reduce((sum, entry) => sum + entry.transferSize, 0), requests: entries.length,
                  layout_shift: shifts.reduce((sum, shift) => sum + shift.value, 0),
                  nodes: document.getElementsByTagName('*').length, title: document.title, language: document.documentElement.lang,
                  description: document.querySelector('meta[name=description]')?.content ?? '',
                  viewport: document.querySelector('meta[name=viewport]')?.content ?? ''};
        }""")


def first_tokens(driver, server, rounds):
    server.silence, server.rate, server.pieces = 0.3, 0, ["Hello"]
    found = []
    for _ in range(rounds):
        page = browser.Page(driver).open(server.url)
        page.run(WATCH_TEXT)
        page.send("Go")
        painted = page.until(lambda: page.run("return window.painted"))
        found.append(painted - 1e3 * server.written)
        page.idle()
    return found


def longest_tasks(driver, server, rate, rounds):
    server.silence, server.rate, server.pieces = 0, rate, long_answer()
    found = []
    for _ in range(rounds):
        page = browser.Page(driver).open(server.url)
        page.run(WATCH_TASKS)
        page.send("Go").idle(300)
        tasks = page.run("return window.tasks")
        found.append(max(tasks, default=0))
        print(f"  {len(tasks)} tasks of {TASK_MS} ms and more, the longest {found[-1]:.0f} ms", file=sys.stderr)
        driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": server.url, "storageTypes": "all"})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--rounds", type=int, default=10)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench/results/page.jsonl")
    arguments = parser.parse_args()
    driver = browser.chromium()
    server = paced_server()
    driver.get(server.url)  # the browser's own start is over
    rounds = arguments.rounds
    measured = [("page first load", first_loads(driver, arguments.build, rounds)), ("page first token", first_tokens(driver, server, rounds)),
                ("page longest task, as fast as sent", longest_tasks(driver, server, 0, max(1, rounds // 3))),
                ("page longest task, 200 tok/s", longest_tasks(driver, server, 200, 1))]
    origin = {**compare.origin(), "command": f"bench/page.py -r {rounds}", "browser": driver.capabilities["browserVersion"]}
    facts = load_facts(driver, arguments.build)
    print(json.dumps(facts, ensure_ascii=False))
    with arguments.output.open("a") as file:
        file.write(json.dumps({**origin, "bench": "page load facts", **facts}, ensure_ascii=False) + "\n")
        for name, samples in measured:
            samples = [round(sample, 1) for sample in samples]
            row = {**origin, "bench": name, "unit": "ms", "n": len(samples), "median": round(statistics.median(samples), 1), "min": min(samples),
                   "max": max(samples), "samples": samples}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(f"{name}: {row['median']} ms ({row['min']} to {row['max']}, n {row['n']})")
    driver.quit()


main()
