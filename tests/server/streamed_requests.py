"""A streamed request of every protocol and feature, and what of its answer is the same each time."""

import json
import re

QUESTION = [{"role": "user", "content": "Write two sentences about the sea."}]
PROMPT = "The three largest rivers of the world are"
SCHEMA = {"type": "object", "properties": {"town": {"type": "string", "maxLength": 12}, "people": {"type": "integer"}},
          "required": ["town", "people"], "additionalProperties": False}
# Of Ollama's and llama.cpp's lines: what a clock says.
TIMES = re.compile(rb'"(created_at":"[^"]*|(?:\w*_duration|\w+_ms|\w+_per_second|\w+_per_token_ms|e2e_latency)":[0-9.e+-]+)')

REQUESTS = {
    "chat": ("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 24, "stream_options": {"include_usage": True}}),
    "greedy": ("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 24, "temperature": 0}),
    "choices": ("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 12, "n": 3, "temperature": 1.2}),
    "probabilities": ("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 10, "logprobs": True, "top_logprobs": 3}),
    "form": ("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 60, "response_format": {
        "type": "json_schema", "json_schema": {"name": "town", "strict": True, "schema": SCHEMA}}}),
    "penalties": ("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 24, "frequency_penalty": 1.0, "repetition_penalty": 1.3}),
    "completion": ("/v1/completions", {"prompt": PROMPT, "max_tokens": 20}),
    "prompts": ("/v1/completions", {"prompt": [PROMPT, "One, two, three,"], "n": 2, "max_tokens": 8, "seed": 7}),
    "stop": ("/v1/completions", {"prompt": "1, 2, 3, 4,", "max_tokens": 40, "stop": [" 9"], "temperature": 0}),
    "responses": ("/v1/responses", {"input": "Name a colour and say why.", "max_output_tokens": 20}),
    "messages": ("/v1/messages", {"messages": QUESTION, "max_tokens": 20}),
    "ollama": ("/api/chat", {"messages": QUESTION, "options": {"num_predict": 16}}),
    "ollama generate": ("/api/generate", {"prompt": PROMPT, "options": {"num_predict": 16}}),
    "llama.cpp": ("/completion", {"prompt": PROMPT, "n_predict": 16}),
    "sglang": ("/generate", {"text": PROMPT, "sampling_params": {"max_new_tokens": 12}}),
    "tgi": ("/generate_stream", {"inputs": PROMPT, "parameters": {"max_new_tokens": 12, "do_sample": True}}),
}
# Which name an answer has, and what its prompt found in the cache.
NAMES = re.compile(rb'"(?:id|item_id|call_id|system_fingerprint|request_id)":"[^"]*"|"(?:created|created_at|completed_at)":[0-9.]+|'
                   rb'"(?:\w*cached\w*|cache_n|tokens_cached|tokens_evaluated|prompt_n|cache_read_input_tokens|input_tokens)":[0-9]+')


def body_of(name, model="smol", factor=6):
    """`factor`: times as many tokens as REQUESTS says."""
    path, body = REQUESTS[name]
    body = json.loads(json.dumps(body))
    longer = ("max_tokens", "max_output_tokens", "n_predict")
    body = {key: factor * value if key in longer else value for key, value in body.items()}
    if path in ("/v1/chat/completions", "/v1/completions", "/completion"):
        body.setdefault("seed", 11)
    elif path.startswith("/api"):
        body["options"] = {"num_predict": 16 * factor, "seed": 11}
    elif path == "/generate":
        body["sampling_params"] = {"max_new_tokens": 12 * factor, "temperature": 0}
    elif path == "/generate_stream":
        body["parameters"] = {"max_new_tokens": 12 * factor, "do_sample": True, "seed": 11}
    else:
        body["temperature"] = 0
    if path != "/generate_stream":
        body["stream"] = True
    return path, {"model": model, **body}


def told(name, stream):
    """What of a stream is the same each time; which of several choices comes first is not."""
    if name == "form":  # how many tokens an event has is a matter of time where a form leaves but one text
        return b"".join(re.findall(rb'"content":"((?:[^"\\]|\\.)*)"', stream))
    assert b": journal" not in stream
    events = [each for each in NAMES.sub(b"", TIMES.sub(b"", stream)).split(b"\n\n") if not each.startswith(b":")]
    return sorted(events) if name in ("choices", "prompts") else events
