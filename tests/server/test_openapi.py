"""Random requests after the server's own description of itself: none may end in a 5xx, and the description must be good
enough that many of them work. HEADRACE_OPENAPI_REQUESTS says how many (300)."""

import json
import os
import random

import httpx

REQUESTS = int(os.environ.get("HEADRACE_OPENAPI_REQUESTS", 300))
SEED = 20
TEXTS = ["", "hello", "\u00e4\u03b2\U0001f600", "<|im_start|>", "null", "0", "a" * 300, "\x00", "{{ x }}"]
HOSTILE = [None, True, -1, 0.5, 2**31, 1e308, "NaN", [], [None], {}, {"a": [1]}, "x" * 5000, [[[]]]]


def value_of(schema, rng):
    """A value that the schema takes, as far as this knows its words."""
    if "anyOf" in schema:
        return value_of(rng.choice(schema["anyOf"]), rng)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    if kind == "boolean":
        return rng.random() < 0.5
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum", 100)
        near = [low, min(high, low + 1), min(high, max(low, 1)), min(high, max(low, 20))]
        chosen = rng.choice([*near, high] if rng.random() < 0.2 else near)
        if kind == "integer":
            return int(chosen)
        return min(high, low + rng.random()) if "exclusiveMinimum" in schema or rng.random() < 0.5 else chosen
    if kind == "string":
        text = rng.choice(TEXTS)
        return (text or "x" * schema.get("minLength", 0))[: min(schema.get("maxLength", 400) // 4, 400) or 1]
    if kind == "array":
        count = rng.randint(schema.get("minItems", 0), max(schema.get("minItems", 0), 3))
        return [value_of(schema.get("items", {}), rng) for _ in range(count)]
    if kind == "object":
        named = {name: value_of(each, rng) for name, each in schema.get("properties", {}).items()
                 if name in schema.get("required", []) or rng.random() < 0.5}
        return named
    return rng.choice(HOSTILE)


def body_of(schema, rng):
    """The example with some members more, of which a few are wrong."""
    schema = rng.choice(schema["anyOf"]) if "anyOf" in schema else schema
    body = dict(schema.get("example", {}))
    for name, field in schema.get("properties", {}).items():
        if rng.random() < 1.5 / len(schema["properties"]):
            body[name] = rng.choice(HOSTILE) if rng.random() < 0.15 else value_of(field, rng)
    if rng.random() < 0.05 and body:
        body.pop(rng.choice(list(body)))
    return body


def operations_of(document):
    return [(method, path, operation) for path, methods in document["paths"].items() for method, operation in methods.items()]


def test_random_requests_after_the_description(scripted_url):
    with httpx.Client(base_url=scripted_url("hello world"), timeout=30) as client:
        document = client.get("/openapi.json").json()
        operations, rng, counts = operations_of(document), random.Random(SEED), {}
        for turn in range(REQUESTS):
            method, path, operation = operations[turn] if turn < len(operations) else rng.choice(operations)
            content = operation.get("requestBody", {}).get("content", {})
            body = body_of(content["application/json"]["schema"], rng) if "application/json" in content else None
            url = path.replace("{id}", rng.choice(["tiny", "0", "resp_1", "a%2Fb", "%00"]))
            headers = {"content-type": "application/json"} if body is not None else {}
            answer = client.request(method, url, content=json.dumps(body) if body is not None else None, headers=headers)
            assert answer.status_code < 500, (method, url, body, answer.text)
            counts[answer.status_code // 100] = counts.get(answer.status_code // 100, 0) + 1
    assert counts[2] >= 0.3 * REQUESTS, counts
