"""What a running server says of itself: its routes with the fields of their bodies (/openapi.json), those that it refuses by
name, and its metrics (/metrics) after requests that make all of them appear; and the metrics of a router in front of it."""

import collections
import contextlib
import json
import pathlib
import re
import subprocess
import tempfile
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEY = "a-key"


@contextlib.contextmanager
def listening(*command, until):
    """The URL of a server that is started, and ends with the block."""
    child = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = None
        for line in child.stdout:
            found = re.search(r"listening on (http://\S+:\d+)", line)
            url = found[1] if found else url
            if line.startswith(until):
                break
        if url is None:
            raise SystemExit(f"{' '.join(map(str, command))}: it did not start")
        yield url
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def request(url, body=None, method=None, key=KEY):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers, method=method)


def ask(url, body=None, method=None, key=KEY):
    """The text of the answer, whatever its status."""
    try:
        with urllib.request.urlopen(request(url, body, method, key), timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


# --- routes


def bounds_text(schema):
    """", 1 to 8" of a number's schema; bounds that are those of the type say nothing."""
    low, high = schema.get("minimum"), schema.get("maximum")
    from_text = f"over {schema['exclusiveMinimum']:g}" if "exclusiveMinimum" in schema else f"{low:,.12g}" if low is not None and abs(low) < 2**53 else ""
    to_text = f"{high:,.12g}" if high is not None and abs(high) < 2**31 - 1 else ""
    if from_text and to_text:
        return f", {from_text} to {to_text}"
    return f", from {from_text}" if from_text else f", to {to_text}" if to_text else ""


def type_text(schema):
    """A field's type in a few words."""
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_text(each) for each in schema["anyOf"]))
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind in ("integer", "number"):
        return kind + bounds_text(schema)
    if kind == "string" and "maxLength" in schema:
        return f"string, to {schema['maxLength']:,} characters"
    if kind == "array":
        most = f", to {schema['maxItems']:,}" if "maxItems" in schema else ""
        inner = type_text(schema["items"]) if schema.get("items") else "anything"
        return f"list of ({inner}){most}" if " " in inner else f"list of {inner}{most}"
    if kind == "object" and schema.get("properties"):
        return "object: " + ", ".join(f"`{name}`" for name in schema["properties"])
    return kind


def forms_of(operation):
    """The forms that a body may have."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    return schema.get("anyOf", [schema] if schema else [])


def not_served():
    """(method, path) of the routes that are refused by name."""
    text = (ROOT / "src/server/routes.inc").read_text()
    return re.findall(r'ROUTE\("(\w+)", "([^"]+)", \w+, \w+, kNotServed,', text)


def refusal(url, method, path):
    """What a route says that is not served."""
    error = json.loads(ask(url + path.replace("{id}", "x"), body={} if method == "POST" else None, method=method))["error"]
    return re.sub(r"^\S+ is not supported: ", "", error if isinstance(error, str) else error["message"])


def anchor(title):
    return re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")


def routes_page(url):
    paths = json.loads(ask(url + "/openapi.json"))["paths"]
    routes = [(method.upper(), path, operation) for path, operations in paths.items() for method, operation in operations.items()]
    fields = collections.defaultdict(list)  # the fields of a body, as text -> routes that take them
    bodies = {}
    for method, path, operation in routes:
        for form in forms_of(operation):
            if not form.get("properties"):
                continue
            required = form.get("required", [])
            rows = "\n".join(f"| `{name}`{' (required)' if name in required else ''} | {type_text(schema)} |" for name, schema in form["properties"].items())
            fields[rows].append(f"{method} {path}")
            bodies.setdefault((method, path), []).append(rows)
    titles = {rows: f"Body of {takers[0]}" for rows, takers in fields.items()}
    page = ["# Routes\n",
            "Every route of `headrace serve`, with the fields of its body, their types and the bounds that they are checked against, as `/openapi.json`",
            "of a server has them. What they do is on the pages that [Serving](../serving.md#routes) names.\n",
            "| route | key | body |", "|---|---|---|"]  # fmt: skip
    for method, path, operation in routes:
        links = [f"[{len(rows.splitlines())} fields](#{anchor(titles[rows])})" for rows in bodies.get((method, path), [])]
        example = next((form["example"] for form in forms_of(operation) if "example" in form), None)
        kinds = operation.get("requestBody", {}).get("content", {})
        body = " or ".join(links) or (f"`{json.dumps(example)}`" if example else ", ".join(kinds))
        page.append(f"| `{method} {path}` | {'open' if operation.get('security') == [] else 'key'} | {body} |")
    page += ["\n*Open*: without a key even where `--api-key` is given; `/metrics` too, unless there is a `--metrics-key`. Routes of a router beside these:",
             "`GET /workers`, `POST /workers`, `DELETE /workers/{id}`, `POST /workers/{id}/drain` and `undrain` ([many servers](../scale.md)).",
             "\n## Refused by name", "What other servers have and this one answers with a 400.\n", "| route | what it says |", "|---|---|"]  # fmt: skip
    page += [f"| `{method} {path}` | {refusal(url, method, path)} |" for method, path in not_served()]
    for rows, takers in fields.items():
        page += [f"\n## {titles[rows]}"]
        if len(takers) > 1:
            page.append("Also of " + ", ".join(f"`{taker}`" for taker in takers[1:]) + ".")
        page += ["\n| field | type |", "|---|---|", rows]
    return "\n".join(page) + "\n"


# --- metrics


def families(text):
    """[(name, type, help, labels)] of Prometheus' text, labels without those of every series."""
    found, labels = {}, collections.defaultdict(dict)
    for name, said in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE):
        found[name] = [said, "untyped"]
    for name, kind in re.findall(r"^# TYPE (\S+) (.*)$", text, re.MULTILINE):
        found.setdefault(name, ["", ""])[1] = kind
    for name, inside in re.findall(r"^(\w[\w:]*)\{(.*)\} ", text, re.MULTILINE):
        family = next((name[: len(name) - len(end)] for end in ("_bucket", "_sum", "_count") if name.endswith(end) and name[: len(name) - len(end)] in found), name)
        for label, value in re.findall(r'(\w+)="([^"]*)"', inside):
            labels[family].setdefault(label, set()).add(value)
    return [(name, kind, said, {label: values for label, values in labels[name].items() if label not in ("engine", "model_name", "le")})
            for name, (said, kind) in found.items()]  # fmt: skip


def metric_rows(text):
    rows = ["| metric | type | labels | what it says |", "|---|---|---|---|"]
    for name, kind, said, labels in sorted(families(text)):
        shown = ", ".join(f"`{label}`" for label in sorted(labels))
        rows.append(f"| `{name}` | {kind} | {shown} | {said} |")
    return rows


def named_in_sources(folder, pattern):
    """Every name of a metric that the sources have in a string."""
    found = set()
    for path in sorted((ROOT / "src" / folder).glob("*.cc")):
        if not path.name.endswith("_test.cc"):
            found |= set(re.findall(rf'"({pattern})"', path.read_text()))
    return found


def metrics_page(own, routers):
    missing = named_in_sources("server", r"(?:vllm|headrace|sglang|llamacpp):\w+") - {name for name, *_ in families(own)}
    missing |= named_in_sources("route", r"headrace_route_\w+") - {name for name, *_ in families(routers)}
    if missing:
        raise SystemExit(f"served_words.py: the sources have metrics that did not appear, make requests here that show them: {', '.join(sorted(missing))}")
    return "\n".join([
        "# Metrics\n",
        "Every family of `/metrics`, in Prometheus' text format. What to watch, dashboards and alarms: [Monitoring](../monitoring.md). All of a server have the",
        "labels `model_name` and `engine`; histograms have `_bucket`, `_sum` and `_count`.\n",
        "## Of a server", *metric_rows(own), "\n## Of a router", "`headrace route` ([many servers](../scale.md)).\n", *metric_rows(routers)]) + "\n"  # fmt: skip


def pages(program, model):
    """{"routes": text, "metrics": text}, from a server with everything on, and a router."""
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder) / "keys"
        keys.write_text(json.dumps({"key": KEY, "name": "somebody", "concurrent_requests": 4}) + "\n" + json.dumps({"key": "other", "requests_per_minute": 1}))
        keys.chmod(0o600)
        with listening(program, "serve", "-m", model, "--served-model-name", "a-model", "--port", "0", "--api-key-file", keys, "--batch-dir", f"{folder}/batches",
                       "--max-model-len", "512", "--otlp-traces-endpoint", "http://127.0.0.1:9", until="ready") as url:  # fmt: skip
            ask(url + "/v1/completions", {"prompt": "Once upon a time " * 20, "max_tokens": 2, "cache_pin": 60})
            for _ in range(2):  # the second is over its key's limit
                ask(url + "/v1/completions", {"prompt": "x", "max_tokens": 1}, key="other")
            with listening(program, "route", "--worker", url, "--port", "0", until="listening") as router:
                routers = ask(router + "/metrics")
            endless = {"prompt": "x", "max_tokens": 500, "ignore_eos": True, "stream": True}
            with urllib.request.urlopen(request(url + "/v1/completions", endless), timeout=60) as answer:
                answer.readline()  # it is under way
                metrics = ask(url + "/metrics")
            return {"routes": routes_page(url), "metrics": metrics_page(metrics, routers)}
