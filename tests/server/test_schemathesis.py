"""Schemathesis against the server's own description of itself: requests that the description allows, and others that it
does not. None may end in a 5xx, take long or be refused without a word; of all, 30 % must work.

HEADRACE_OPENAPI_REQUESTS says how many (600; ./test --full: 10,000)."""

import collections
import os

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable

REQUESTS = int(os.environ.get("HEADRACE_OPENAPI_REQUESTS", 600))
SEED = 20
SECONDS = 30  # of one request


def count_answers(operation, mode, requests, counts):
    """Sends so many requests to one operation."""

    @hypothesis.seed(SEED)
    @hypothesis.settings(max_examples=requests, deadline=None, phases=[Phase.generate], database=None,
                         suppress_health_check=list(HealthCheck))
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def send(case):
        answer = case.call(timeout=SECONDS)
        counts[answer.status_code // 100] += 1
        assert answer.status_code < 500, (operation.label, case.body, answer.text)
        if answer.status_code >= 400:
            error = answer.json()["error"]
            message = error if isinstance(error, str) else error["message"]
            assert message, (operation.label, case.body, answer.text)

    try:
        send()
    except Unsatisfiable:  # nothing about it can be wrong
        assert mode == schemathesis.GenerationMode.NEGATIVE, operation.label


@pytest.mark.timeout(1800)
def test_requests_after_the_description(scripted_url):
    url = scripted_url("hello world", forms=True)
    operations = [each.ok() for each in schemathesis.openapi.from_url(url + "/openapi.json").get_all_operations()]
    counts = collections.Counter()
    # More than one together: of some operations nothing can be wrong.
    shares = {schemathesis.GenerationMode.POSITIVE: 0.85, schemathesis.GenerationMode.NEGATIVE: 0.25}
    for operation in operations:
        for mode, share in shares.items():
            count_answers(operation, mode, max(1, -int(-REQUESTS * share // len(operations))), counts)
    assert sum(counts.values()) >= REQUESTS, counts
    assert counts[2] >= 0.3 * sum(counts.values()), counts
