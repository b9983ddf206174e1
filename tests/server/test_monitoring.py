"""What a running server tells Prometheus: the names that dashboards and gateways read, and those of deploy/monitoring."""

import json
import re
import time
import urllib.request

import pytest

from conftest import NAME, ROOT

FOLDER = ROOT / "deploy/monitoring"
# Words of PromQL that stand where a metric's name could.
WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "offset", "bool"}
# What Prometheus itself adds.
OF_PROMETHEUS = {"up"}


def metrics_of(query):
    """The names of the metrics in a query of PromQL."""
    query = re.sub(r'"(?:\\.|[^"\\])*"', "", query)
    query = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", query)
    query = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", query)
    found = re.findall(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(?!\s*\(|[\w:])", query)
    return {name for name in found if name not in WORDS}


def test_names_are_found_in_queries():
    query = 'histogram_quantile(0.9, sum by (le, x) (rate(a:b_bucket{le="0.1", c=~"$d"}[$__rate_interval]))) / c_d > 10 and up == 0'
    assert metrics_of(query) == {"a:b_bucket", "c_d", "up"}


def queries():
    board = json.loads((FOLDER / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield f'{panel["title"]}: {target["legendFormat"]}', target["expr"]
    for variable in board["templating"]["list"]:
        values = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"])
        if values:
            yield variable["name"], values[1]
    alerts = (FOLDER / "alerts.yml").read_text()
    found = re.findall(r"- alert: (\w+)\n\s+expr: (.*)\n", alerts)
    assert len(found) == alerts.count("- alert:")
    yield from found


@pytest.fixture(scope="module")
def exposed(server):
    body = json.dumps({"model": NAME, "prompt": "a b c", "max_tokens": 4, "n": 2}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).read()
    return urllib.request.urlopen(server.url + "/metrics", timeout=10).read().decode()


def value(exposed, name, **labels):
    rows = re.findall(rf"^{re.escape(name)}(?:\{{(.*)\}})? (\S+)$", exposed, re.MULTILINE)
    found = [float(number) for text, number in rows if all(f'{key}="{each}"' in text for key, each in labels.items())]
    assert found, f"no {name} {labels}"
    return sum(found)


def test_every_query_names_what_is_exposed(exposed):
    names = set(re.findall(r"^([a-zA-Z_:][\w:]*)", exposed, re.MULTILINE)) | OF_PROMETHEUS
    asked = dict(queries())
    assert len(asked) > 40
    for title, query in asked.items():
        used = metrics_of(query)
        assert used, title
        assert used <= names, f"{title}: {used - names}"


def test_the_names_that_dashboards_know(exposed):
    gauges = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "gpu_cache_usage_perc"]
    counters = [
        "prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "prompt_tokens", "prompt_tokens_cached",
        "generation_tokens", "request_success", "corrupted_requests", "spec_decode_num_draft_tokens",
        "spec_decode_num_accepted_tokens", "estimated_flops_per_gpu", "estimated_read_bytes_per_gpu", "estimated_write_bytes_per_gpu",
        "tool_call_parser_invocations",
    ]
    histograms = [
        "time_to_first_token_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds",
        "request_time_per_output_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
        "request_inference_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens", "request_params_n",
        "request_params_max_tokens", "request_prefill_kv_computed_tokens", "iteration_tokens_total",
        "kv_block_lifetime_seconds", "kv_block_idle_before_evict_seconds", "kv_block_reuse_gap_seconds",
    ]
    for name in gauges:
        assert value(exposed, f"vllm:{name}") >= 0
    for name in counters:
        assert value(exposed, f"vllm:{name}_total") >= 0
    for name in histograms:
        count, le = value(exposed, f"vllm:{name}_count"), value(exposed, f"vllm:{name}_bucket", le="+Inf")
        assert count == le
        assert value(exposed, f"vllm:{name}_sum") >= 0
    for name in ("num_running_reqs", "num_queue_reqs", "token_usage", "cache_hit_rate", "prompt_tokens_total", "generation_tokens_total",
                 "cached_tokens_total", "num_retracted_reqs", "time_to_first_token_seconds_count", "inter_token_latency_seconds_count",
                 "e2e_request_latency_seconds_count", "queue_time_seconds_count", "spec_accept_rate"):
        assert value(exposed, f"sglang:{name}") >= 0


def test_what_gateways_read(exposed):
    for reason in ("capacity", "deferred"):
        assert value(exposed, "vllm:num_requests_waiting_by_reason", reason=reason) == 0
    assert value(exposed, "vllm:engine_sleep_state", sleep_state="awake") == 1
    assert value(exposed, "vllm:engine_sleep_state", sleep_state="discard_all") == 0
    assert abs(value(exposed, "vllm:lora_requests_info", max_lora="0", running_lora_adapters="") - time.time()) < 3600
    assert value(exposed, "vllm:cache_config_info", block_size="16") == 1


def test_numbers_fit_one_another(exposed):
    prompts = value(exposed, "vllm:prompt_tokens_total")
    sources = [value(exposed, "vllm:prompt_tokens_by_source_total", source=source)
               for source in ("local_compute", "local_cache_hit", "external_kv_transfer")]
    assert sum(sources) == prompts > 0
    assert sources[1] == value(exposed, "vllm:prompt_tokens_cached_total") and sources[2] == 0
    assert value(exposed, "sglang:prompt_tokens_total") == prompts
    inference, prefill, decode = (value(exposed, f"vllm:request_{kind}_time_seconds_sum") for kind in ("inference", "prefill", "decode"))
    assert inference == pytest.approx(prefill + decode)
    longest = value(exposed, "vllm:request_max_num_generation_tokens_sum")
    assert 0 < longest <= value(exposed, "vllm:request_generation_tokens_sum")


def test_the_work_of_steps_is_that_of_the_models_sizes(exposed):
    steps, rows = value(exposed, "headrace:steps_total"), value(exposed, "vllm:iteration_tokens_total_sum")
    operations = value(exposed, "vllm:estimated_flops_per_gpu_total")
    # SmolLM2: 106 M parameters in matrices that all rows take, 28 M in the output's, which sampled rows do. Attention adds little.
    assert 2 * 106e6 * rows < operations < 2 * 140e6 * rows
    # A step reads the matrices once: of 4 and 5 bits and 8.
    read = value(exposed, "vllm:estimated_read_bytes_per_gpu_total")
    assert 0.5 * 106e6 * steps < read < 1.3 * 135e6 * steps + 1e9
    # 30 layers, 3 heads, 64 components, keys and values, two bytes.
    assert value(exposed, "vllm:estimated_write_bytes_per_gpu_total") == rows * 30 * 3 * 64 * 2 * 2
