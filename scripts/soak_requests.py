"""Requests of the soak: what is asked, how it is sent, what an answer says."""

import http.client
import json
import re

import soak_adapters
from soak_models import MODEL_LEN

ABORTED = 0.12  # of the requests
GROWS = "long-answer"  # the case that outgrows what memory it found, and is asked for most where that is tight
TOPS = 8
TENANTS = 4
SCHEMA = {
    "type": "object", "required": ["name", "number_of_items", "kind", "is_paid"],
    "properties": {"name": {"type": "string", "maxLength": 6}, "number_of_items": {"type": "integer", "minimum": 0, "maximum": 999},
                   "kind": {"enum": ["a", "bc", None]}, "is_paid": {"type": "boolean"}},
}  # fmt: skip
DATE = r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]( at [0-9]{2}:[0-9]{2})?"
CHOICES = ["yes", "no", "yes, but later"]


class Case:
    def __init__(self, name, prompt, tokens, is_of_form=None, **fields):
        self.name, self.is_of_form = name, is_of_form
        self.body = {
            "model": "soak", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": TOPS,
            "ignore_eos": True, "return_token_ids": True, "return_tokens_as_token_ids": True, **fields,
        }  # fmt: skip

    def invalid(self, answer):
        """A text that was not cut and is not of the form that was asked for; None: there is none."""
        ended = [choice["text"] for choice in answer if choice["finish"] != "length"]
        return next((text for text in ended if self.is_of_form and not self.is_of_form(text)), None)


def is_of_schema(text):
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return (
        list(value) == SCHEMA["required"] and isinstance(value["name"], str) and len(value["name"]) <= 6
        and type(value["number_of_items"]) is int and 0 <= value["number_of_items"] <= 999
        and value["kind"] in ("a", "bc", None) and isinstance(value["is_paid"], bool)
    )  # fmt: skip


def make_cases(random, shape, flags):
    def ids(count):
        return [random.randrange(3, shape.vocab) for _ in range(count)]

    shared = ids(random.randint(180, 300))
    sampled = {"temperature": 0.9, "seed": random.randrange(1 << 31)}
    biases = {str(token): random.choice((-30, 4, 8)) for token in ids(24)}
    # Near the largest that fits, so that its pages outgrow what a step computes.
    longest = MODEL_LEN - 120
    cases = [
        Case("greedy", ids(random.randint(3, 40)), 32),
        Case("one-token", ids(random.randint(1, 16)), 1),
        # Decodes of more keys than attention ever leaves to one thread block, where it shares them out.
        Case("long", ids(random.randint(640, longest)), 24),
        Case(GROWS, ids(random.randint(100, 200)), 128),
        Case("shared-1", shared + ids(7), 24),
        Case("shared-2", shared + ids(33), 24),
        Case("shared-3", shared[:161] + ids(2), 16),
        Case("sampled", ids(random.randint(20, 120)), 32, **sampled),
        Case("sampled-cut", ids(50), 32, top_k=40, top_p=0.9, min_p=0.01, **sampled),
        Case("n", ids(random.randint(20, 80)), 16, n=3, **sampled),
        Case("penalties", ids(24), 32, repetition_penalty=1.3, presence_penalty=0.6, frequency_penalty=0.7, **sampled),
        Case("penalties-last", ids(40), 48, n=2, repeat_last_n=random.choice((1, 2, 7, 33, 64)), repetition_penalty=1.3, frequency_penalty=0.7, **sampled),
        Case("bias", ids(30), 24, logit_bias=biases),
        # One token whatever the logits are: their ln p is compared at every position.
        Case("forced", ids(random.randint(60, 200)), 40, logit_bias={str(ids(1)[0]): 100}),
        Case("scored", ids(random.randint(80, 200)), 2, echo=True),
        Case("stream", ids(random.randint(20, 60)), 24, stream=True),
        Case("schema", ids(random.randint(3, 60)), 300, is_of_schema, structured_outputs={"json": SCHEMA}),
        Case("schema-sampled", ids(20), 300, is_of_schema, n=2, structured_outputs={"json": SCHEMA}, presence_penalty=0.5, **sampled),
        Case("regex", ids(9), 40, lambda text: re.fullmatch(DATE, text), structured_outputs={"regex": DATE}, **sampled),
        Case("choice", ids(12), 24, CHOICES.__contains__, structured_outputs={"choice": CHOICES}, logit_bias=biases),
    ]
    if flags.adapters and soak_adapters.modules_of(shape):
        models = ["soak", *map(soak_adapters.name_of, range(flags.adapters))]
        for number, case in enumerate(cases):  # neighbours share a model, as prefixes do
            case.body["model"] = models[number // 2 % len(models)]
    return cases


def weights(cases, flags):
    return [8 if flags.pressure and case.name == GROWS else 1 for case in cases]


class Connection:
    def __init__(self, port, timeout):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def __enter__(self):
        return self.http

    def __exit__(self, *_):
        self.http.close()


def with_company(body, random, flags, alone):
    """What changes no answer: whose it is, what it may find in the cache."""
    body = dict(body)
    if alone:
        return {**body, "cache_salt": "alone"}
    if flags.policy == "fair":
        body["user"] = f"tenant-{random.randrange(TENANTS)}"
    if flags.policy == "priority":
        body["priority"] = random.randrange(3)
    # Half find nothing, or, where pages go out, what went out long ago.
    if random.random() < 0.5:
        body["cache_salt"] = str(random.randrange(4) if flags.pressure else random.random())
    return body


def send(port, case, random, flags, abort=None):
    """The choices of an answer; None of one that was left. `abort` None: alone."""
    body = with_company(case.body, random, flags, alone=abort is None)
    streams = abort or body.get("stream", False)
    body["stream"] = bool(streams)
    with Connection(port, timeout=110) as http_connection:
        http_connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = http_connection.getresponse()
        if response.status != 200:
            raise ValueError(f"status {response.status}: {response.read(400).decode(errors='replace')}")
        if abort:
            for _ in range(random.randint(0, 6)):
                response.readline()
            return None
        return choices_of(events(response) if streams else [json.loads(response.read())])


def events(response):
    for line in response:
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            return
        event = json.loads(line[6:])
        if "error" in event:
            raise ValueError(f"error event: {event['error']}")
        yield event
    raise ValueError("the stream ended without [DONE]")


def choices_of(parts):
    """[{text, tokens, chosen: ln p of each position, tops: {token: ln p} of each, finish}], echoed positions included."""
    choices = {}
    for part in parts:
        for piece in part["choices"]:
            choice = choices.setdefault(piece["index"], {"text": "", "tokens": [], "chosen": [], "tops": [], "finish": None})
            choice["text"] += piece.get("text") or ""
            choice["tokens"] += piece.get("token_ids") or []
            logprobs = piece.get("logprobs") or {}
            choice["chosen"] += logprobs.get("token_logprobs") or []
            choice["tops"] += logprobs.get("top_logprobs") or []
            choice["finish"] = piece.get("finish_reason") or choice["finish"]
    return [choices[index] for index in sorted(choices)]
