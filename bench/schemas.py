#!/usr/bin/env python3
"""Answers of many JSON schemas, judged by another program: how many end, and whether all that do are valid.

    bench/schemas.py [-m MODEL] [--count 300] [--tokens 600] [--streams 8] [--headrace PROGRAM] [-- FLAGS OF SERVE]

A fifth of the schemas are those of tests/server/schemas_of_answers.py, as many as there are; half of the others get more difficult from
one to the next (more properties, deeper, more keywords), half are drawn at random from all keywords that docs/structured_output.md
names. Temperatures go through 0, 0.8 and 1.5. Printed: refused, ended, valid, and the places of those that are not. Appends a row to
bench/results/forms.jsonl. Needs the package jsonschema_rs.
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import random
import sys

import jsonschema_rs

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/peers"), str(ROOT / "tests/server")]
import compare  # noqa: E402
import starts  # noqa: E402
from schemas_of_answers import SCHEMAS  # noqa: E402
from server import Server  # noqa: E402

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEMPERATURES = (0, 0.8, 1.5)
WORDS = "name age city price count tags owner address state code level items score unit color size date kind note total".split()
FORMATS = ("date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri")
PATTERNS = (r"[A-Z]{2}-\d{3}", r"^(red|green|blue)$", r"\d{1,3}(\.\d{1,2})?", r"[a-z]+_[a-z]{1,8}", r"[0-9a-f]{8}")


def text(draw, level):
    choice = draw.randrange(2 + min(level, 4))
    if choice == 0:
        return {"type": "string", "maxLength": draw.randint(1, 12)}
    if choice == 1:
        return {"enum": draw.sample(WORDS, draw.randint(1, 4))}
    if choice == 2:
        return {"type": "string", "minLength": 1, "maxLength": draw.randint(2, 20)}
    if choice == 3:
        return {"type": "string", "format": draw.choice(FORMATS)}
    if choice == 4:
        return {"type": "string", "pattern": draw.choice(PATTERNS)}
    return {"const": draw.choice(WORDS)}


def number(draw, level):
    low = draw.randint(-1000, 1000)
    bounds = draw.choice(({"minimum": low, "maximum": low + draw.randint(0, 5000)}, {"exclusiveMinimum": low, "maximum": low + 50},
                          {"minimum": low}, {}))
    return {"type": draw.choice(("integer", "number") if level > 2 else ("integer",)), **bounds}


def array(draw, level, depth):
    schema = {"type": "array", "items": value(draw, level, depth - 1), "maxItems": draw.randint(1, 4)}
    if level > 3 and draw.random() < 0.3:
        schema["minItems"] = draw.randint(0, schema["maxItems"])
    if level > 5 and draw.random() < 0.3:
        schema["prefixItems"] = [value(draw, level, depth - 1)]
    return schema


def structure(draw, level, depth):
    names = draw.sample(WORDS, min(len(WORDS), draw.randint(1, 1 + level)))
    properties = {name: value(draw, level, depth - 1) for name in names}
    required = names if level < 4 else [name for name in names if draw.random() < 0.8]
    schema = {"type": "object", "properties": properties, "required": required}
    if draw.random() < 0.7:
        schema["additionalProperties"] = False
    if level > 6 and draw.random() < 0.3:
        more = {"more": value(draw, level, depth - 1)}
        schema = {"allOf": [{k: v for k, v in schema.items() if k != "additionalProperties"},
                            {"type": "object", "properties": more, "required": ["more"]}]}
    return schema


def value(draw, level, depth):
    kinds = [text, number, lambda d, v: {"type": "boolean"}, lambda d, v: {"type": "null"}]
    if depth > 0:
        kinds += [lambda d, v: array(d, v, depth), lambda d, v: structure(d, v, depth)] * 2
        if level > 4:
            kinds.append(lambda d, v: {"anyOf": [value(d, v, depth - 1) for _ in range(d.randint(2, 3))]})
    return draw.choice(kinds)(draw, level)


def tree(draw, level):
    """A schema that refers to itself, through lists that may be empty."""
    node = structure(draw, min(level, 4), 1)
    node["properties"]["children"] = {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}
    return {"$defs": {"node": node}, "$ref": "#/$defs/node"}


def schemas(count):
    own = SCHEMAS[: count // 5]
    rising = (count - len(own)) // 2
    for i in range(rising):
        level = 1 + 11 * i // rising
        own.append(structure(random.Random(1000 + i), level, 1 + level // 4))
    while len(own) < count:
        draw = random.Random(len(own))
        level = draw.randint(1, 12)
        own.append(tree(draw, level) if draw.random() < 0.1 else value(draw, level, draw.randint(1, 3)))
    return own


def ask(port, index, schema, options):
    prompt = "A JSON schema, and an example of a value of it.\n" + json.dumps(schema)[:600] + "\nExample:\n"
    body = {"prompt": prompt, "temperature": TEMPERATURES[index % len(TEMPERATURES)], "seed": index, "max_tokens": options.tokens,
            "structured_outputs": {"json": schema}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    if response.status != 200:
        return "refused", answer["error"]["message"]
    choice = answer["choices"][0]
    if choice["finish_reason"] != "stop":
        return choice["finish_reason"], choice["text"]
    try:
        jsonschema_rs.validator_for(schema, validate_formats=True).validate(json.loads(choice["text"]))
    except ValueError as error:  # of JSON too
        return "invalid", f"{choice['text']}: {error}"
    return "valid", choice["text"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=starts.CACHE / "headrace/models" / MODEL, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:cut], argparse.Namespace(flags=sys.argv[cut + 1 :]))
    asked = schemas(options.count)
    with Server(options.headrace, str(options.model), "--device", "cpu", "--max-model-len", "2048", *options.flags) as server:
        with concurrent.futures.ThreadPoolExecutor(options.streams) as pool:
            answers = list(pool.map(lambda each: ask(server.port, *each, options), enumerate(asked)))
    counts = {}
    for index, (verdict, said) in enumerate(answers):
        counts[verdict] = counts.get(verdict, 0) + 1
        if verdict != "valid":
            print(f"{index}: {verdict}: {said[:200]} ... {said[-100:]}\n    {json.dumps(asked[index])[:600]}")
    taken = options.count - counts.get("refused", 0)
    ended = counts.get("valid", 0) + counts.get("invalid", 0)
    print(f"{options.model.name}: of {taken} answers {ended} ended ({100 * ended / taken:.1f} %), {counts.get('valid', 0)} of these valid; "
          f"{counts.get('refused', 0)} schemas refused")
    row = {"bench": "forms_schemas", "model": options.model.name, "schemas": options.count, "tokens": options.tokens, **counts,
           "ended_share": round(ended / taken, 4), **compare.origin(), "command": " ".join(["bench/schemas.py", *sys.argv[1:]])}
    with open(ROOT / "bench/results/forms.jsonl", "a") as rows:
        rows.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
