"""The `openai` client's files and batches against `headrace serve --batch-dir` with a real model."""

import io
import json
import random
import time

import openai
import pytest

from conftest import NAME

ENDED = ("completed", "failed", "expired", "cancelled")


def line(number, **body):
    body = {"model": NAME, "messages": [{"role": "user", "content": f"Count to {number}."}], "max_tokens": 4 + number % 5,
            "temperature": 0, **body}
    return json.dumps({"custom_id": f"request-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body})


def upload(client, lines, **options):
    content = "".join(text + "\n" for text in lines).encode()
    return client.files.create(file=("requests.jsonl", io.BytesIO(content)), purpose="batch", **options)


def create(client, file, **options):
    options = {"endpoint": "/v1/chat/completions", "completion_window": "24h", **options}
    return client.batches.create(input_file_id=file.id, **options)


def wait_ended(client, batch, seconds=120):
    deadline = time.monotonic() + seconds
    while batch.status not in ENDED:
        assert time.monotonic() < deadline, f"still {batch.status}"
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def lines_of(client, file_id):
    """custom_id -> line; each once."""
    found = {}
    for text in client.files.content(file_id).text.splitlines():
        answer = json.loads(text)
        assert answer["custom_id"] not in found, "answered twice"
        found[answer["custom_id"]] = answer
    return found


def texts_of(answers):
    return {name: answer["response"]["body"]["choices"][0]["message"]["content"] for name, answer in answers.items()}


def text_of(client, request):
    """What the request of a line is answered when it is sent by itself."""
    body = json.loads(request)["body"]
    messages = body.pop("messages")
    answer = client.chat.completions.create(model=body.pop("model"), messages=messages, extra_body=body)
    return answer.choices[0].message.content


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A server that keeps files, for the tests that do not stop it."""
    from conftest import RunningServer

    running = RunningServer("--max-model-len", 2048, "--batch-dir", tmp_path_factory.mktemp("kept"))
    yield running.wait_ready()
    running.kill()


# --- Files ---------------------------------------------------------------------------------------


def test_a_file_is_kept_listed_read_and_deleted(kept):
    client = kept.client()
    content = line(1) + "\n"
    file = upload(client, [line(1)])
    assert (file.object, file.purpose, file.filename) == ("file", "batch", "requests.jsonl")
    assert file.bytes == len(content)
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).text == content
    second = upload(client, [line(2)])
    assert [found.id for found in client.files.list(limit=2)][:2] == [second.id, file.id]
    assert client.files.list(order="asc", purpose="batch_output").data == []
    deleted = client.files.delete(file.id)
    assert deleted.deleted and deleted.id == file.id
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            call(file.id)


def test_a_large_file_comes_back_whole(kept):
    client = kept.client()
    content = random.Random(3).randbytes(24 << 20)
    file = client.files.create(file=("large.jsonl", content), purpose="batch")
    assert file.bytes == len(content)
    assert client.files.content(file.id).read() == content
    client.files.delete(file.id)


def test_an_upload_in_parts_is_a_file_of_a_batch(kept, tmp_path):
    client = kept.client()
    content = "".join(line(number) + "\n" for number in range(3)).encode()
    (tmp_path / "requests.jsonl").write_bytes(content)
    upload = client.uploads.upload_file_chunked(
        file=tmp_path / "requests.jsonl", mime_type="application/jsonl", purpose="batch", part_size=100)
    assert upload.status == "completed" and upload.file.bytes == len(content)
    assert client.files.content(upload.file.id).read() == content
    assert wait_ended(client, create(client, upload.file)).request_counts.completed == 3


def test_an_upload_that_is_cancelled_is_gone(kept):
    client = kept.client()
    ask = dict(bytes=5, filename="a", mime_type="text/plain", purpose="batch")
    upload = client.uploads.create(**ask)
    assert (upload.object, upload.status, upload.bytes) == ("upload", "pending", 5)
    part = client.uploads.parts.create(upload.id, data=b"123")
    assert (part.object, part.upload_id) == ("upload.part", upload.id)
    with pytest.raises(openai.BadRequestError, match="3 bytes together"):
        client.uploads.complete(upload.id, part_ids=[part.id])
    assert client.uploads.cancel(upload.id).status == "cancelled"
    with pytest.raises(openai.NotFoundError, match="upload_id|no upload"):
        client.uploads.complete(upload.id, part_ids=[part.id])
    for wrong in ({"bytes": 0}, {"bytes": 2**40}, {"filename": ""}, {"mime_type": 1}, {"purpose": "vision"}):
        with pytest.raises(openai.BadRequestError, match=next(iter(wrong))):
            client.uploads.create(**{**ask, **wrong})


@pytest.mark.parametrize("options, named", [
    (dict(purpose="fine-tune"), "purpose"),
    (dict(file=("requests.jsonl", b"")), "file"),
    (dict(expires_after={"anchor": "created_at", "seconds": 5}), "expires_after"),
])
def test_files_that_are_refused(kept, options, named):
    with pytest.raises(openai.BadRequestError) as refused:
        kept.client().files.create(**{"file": ("requests.jsonl", b"{}\n"), "purpose": "batch", **options})
    assert named in str(refused.value)


def test_a_server_without_a_folder_says_so(server):
    with pytest.raises(openai.NotFoundError, match="--batch-dir"):
        server.client().files.list()


# --- Batches -------------------------------------------------------------------------------------


def test_a_batch_is_answered_as_the_same_requests_are(kept):
    client = kept.client()
    file = upload(client, [line(i) for i in range(12)] + [line(12, temperature=-1)])
    batch = create(client, file, metadata={"night": "7"})
    assert batch.status == "validating" and batch.expires_at == batch.created_at + 24 * 3600
    assert batch.metadata == {"night": "7"}
    batch = wait_ended(client, batch)
    assert batch.status == "completed", batch
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (13, 12, 1)
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    answers = lines_of(client, batch.output_file_id)
    assert set(answers) == {f"request-{i}" for i in range(12)}
    errors = lines_of(client, batch.error_file_id)
    assert errors["request-12"]["response"]["status_code"] == 400
    assert texts_of(answers)["request-3"] == text_of(client, line(3))
    assert client.files.retrieve(batch.output_file_id).purpose == "batch_output"


def test_a_batch_whose_file_is_wrong_fails_and_names_the_line(kept):
    client = kept.client()
    batch = wait_ended(client, create(client, upload(client, [line(1), "nonsense"])))
    assert batch.status == "failed" and batch.output_file_id is None
    assert batch.errors.data[0].line == 2
    other = wait_ended(client, create(client, upload(client, [line(1)]), endpoint="/v1/completions"))
    assert other.status == "failed" and "endpoint" in other.errors.data[0].message


@pytest.mark.parametrize("options, named", [
    (dict(endpoint="/v1/embeddings"), "endpoint"),
    (dict(completion_window="1h"), "completion_window"),
    (dict(metadata={"x": "y" * 600}), "metadata"),
    (dict(output_expires_after={"anchor": "created_at", "seconds": 1}), "output_expires_after"),
])
def test_batches_that_are_refused(kept, options, named):
    client = kept.client()
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, upload(client, [line(1)]), **options)
    assert named in str(refused.value)


def test_a_batch_of_no_file(kept):
    with pytest.raises(openai.NotFoundError):
        kept.client().batches.create(input_file_id="file-none", endpoint="/v1/completions", completion_window="24h")
    with pytest.raises(openai.NotFoundError):
        kept.client().batches.retrieve("batch_none")


def test_lists_have_pages(kept):
    client = kept.client()
    file = upload(client, [line(1)])
    made = [create(client, file).id for _ in range(5)]
    page = client.batches.list(limit=2)
    assert page.has_more and [batch.id for batch in page.data] == [made[4], made[3]]
    assert [batch.id for batch in client.batches.list(limit=2)][:5] == made[::-1]  # the client turns the pages
    with pytest.raises(openai.BadRequestError):
        client.batches.list(after="batch_none")
    with pytest.raises(openai.BadRequestError):
        client.batches.list(limit=1000)


@pytest.mark.timing
def test_a_cancelled_batch_keeps_what_it_has(kept):
    client = kept.client()
    batch = create(client, upload(client, [line(i, max_tokens=40, ignore_eos=True) for i in range(400)]))
    while client.batches.retrieve(batch.id).request_counts.completed == 0:
        time.sleep(0.02)
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = wait_ended(client, batch)
    assert batch.status == "cancelled"
    answers, errors = (lines_of(client, file) for file in (batch.output_file_id, batch.error_file_id))
    assert 0 < len(answers) == batch.request_counts.completed < 400
    assert set(answers) | set(errors) == {f"request-{i}" for i in range(400)} and not set(answers) & set(errors)
    assert all(answer["error"]["code"] == "batch_cancelled" for answer in errors.values())
    with pytest.raises(openai.BadRequestError):
        client.batches.cancel(batch.id)
    kept.wait_idle()


def test_keys_do_not_see_each_other(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text('# two teams\nfirst-secret\n{"key": "second-secret", "name": "second"}\n')
    server = start_server("--batch-dir", tmp_path / "kept", "--api-key-file", keys)
    first, second = (server.client(api_key=key) for key in ("first-secret", "second-secret"))
    file = upload(first, [line(1)])
    batch = create(first, file)
    assert [found.id for found in first.files.list()][-1] == file.id
    assert second.files.list().data == [] and second.batches.list().data == []
    for call in (lambda: second.files.content(file.id), lambda: second.files.delete(file.id),
                 lambda: second.batches.retrieve(batch.id), lambda: second.batches.cancel(batch.id),
                 lambda: create(second, file)):
        with pytest.raises(openai.NotFoundError):
            call()
    with pytest.raises(openai.AuthenticationError):
        upload(server.client(api_key="wrong"), ["x" * (9 << 20)])
    assert wait_ended(first, batch).status == "completed"
    assert "secret" not in "".join(path.read_text() for path in (tmp_path / "kept").rglob("*.json"))


# --- Kills and disks -----------------------------------------------------------------------------


def test_a_killed_server_loses_and_repeats_nothing(start_server, tmp_path):
    requests = [line(i, max_tokens=8, ignore_eos=True) for i in range(80)]
    server = start_server("--batch-dir", tmp_path)
    batch = create(server.client(), upload(server.client(), requests))
    server.client().files.delete(batch.input_file_id)  # the batch has its own
    moments = random.Random(5)
    for _ in range(5):
        time.sleep(moments.uniform(0.05, 0.4))
        server.kill()
        server = start_server("--batch-dir", tmp_path)
    batch = wait_ended(server.client(), batch)
    assert batch.status == "completed" and batch.error_file_id is None
    assert batch.request_counts.completed == 80
    answers = lines_of(server.client(), batch.output_file_id)
    assert set(answers) == {f"request-{i}" for i in range(80)}
    assert texts_of(answers)["request-17"] == text_of(server.client(), requests[17])
    assert sorted(path.suffix for path in (tmp_path / "batches").iterdir()) == [".json"]


def test_bounds_on_what_is_kept(start_server, tmp_path):
    server = start_server("--batch-dir", tmp_path, "--batch-dir-files", 2, "--batch-dir-bytes", "10k")
    client = server.client()
    with pytest.raises(openai.BadRequestError, match="delete some"):
        upload(client, ["x" * 11000])
    kept = [upload(client, [line(i)]) for i in range(2)]
    with pytest.raises(openai.BadRequestError, match="delete some"):
        upload(client, [line(3)])
    client.files.delete(kept[0].id)
    upload(client, [line(3)])


def test_a_full_disk_puts_a_batch_off_and_loses_nothing(start_server, tmp_path):
    """Files may not grow beyond 24 KB: no full file of answers. Then they may."""
    log = tmp_path / "log"
    requests = [line(i, max_tokens=2) for i in range(100)]
    small = start_server("--batch-dir", tmp_path / "kept", file_bytes_max=24_000, log=log)
    client = small.client()
    with pytest.raises(openai.InternalServerError, match="disk is full"):
        upload(client, requests)  # 15 KB: fits
        upload(client, requests * 2)
    file = client.files.list().data[0]
    batch = create(client, file)
    deadline = time.monotonic() + 60
    while "put off" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "File too large" in log.read_text()
    assert 0 < client.batches.retrieve(batch.id).request_counts.completed < 100
    assert client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
    small.kill()
    client = start_server("--batch-dir", tmp_path / "kept").client()
    batch = wait_ended(client, batch)
    assert batch.status == "completed"
    assert set(lines_of(client, batch.output_file_id)) == {f"request-{i}" for i in range(100)}


# --- Endpoints -----------------------------------------------------------------------------------


def test_responses_of_a_batch_are_those_that_are_asked_for_alone(kept):
    client = kept.client()
    bodies = [{"model": NAME, "input": f"Count to {number}.", "max_output_tokens": 6, "temperature": 0} for number in range(3)]
    lines = [json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/responses", "body": body}) for i, body in enumerate(bodies)]
    batch = wait_ended(client, create(client, upload(client, lines), endpoint="/v1/responses"))
    assert (batch.status, batch.request_counts.completed) == ("completed", 3)
    for name, answer in lines_of(client, batch.output_file_id).items():
        response = answer["response"]["body"]
        alone = client.responses.create(**bodies[int(name[1:])])
        assert response["output"][0]["content"][0]["text"] == alone.output_text
        with pytest.raises(openai.NotFoundError):  # nobody goes on with it, so it is not kept
            client.responses.retrieve(response["id"])


def test_embeddings_of_a_batch_are_those_that_are_asked_for_alone(minilm):
    client = minilm.client()
    texts = ["A cat.", "A dog and a cat.", "Trains."]
    lines = [json.dumps({"custom_id": f"e{i}", "method": "POST", "url": "/v1/embeddings",
                         "body": {"model": NAME, "input": text if i % 2 else [text, "Another."]}}) for i, text in enumerate(texts)]
    lines.append(json.dumps({"custom_id": "bad", "method": "POST", "url": "/v1/embeddings", "body": {"model": NAME, "input": []}}))
    batch = wait_ended(client, create(client, upload(client, lines), endpoint="/v1/embeddings"))
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 3, 1)
    for name, answer in lines_of(client, batch.output_file_id).items():
        alone = client.embeddings.create(model=NAME, input=texts[int(name[1:])], encoding_format="float").data[0].embedding
        assert answer["response"]["body"]["data"][0]["embedding"] == pytest.approx(alone, abs=1e-6)
    assert lines_of(client, batch.error_file_id)["bad"]["response"]["status_code"] == 400


def test_an_endpoint_that_the_model_cannot_serve_is_refused_at_once(kept, minilm):
    for server, endpoint, said in ((kept, "/v1/embeddings", "no vectors"), (minilm, "/v1/chat/completions", "no texts"),
                                   (kept, "/v1/rerank", "/v1/responses")):
        client = server.client()
        with pytest.raises(openai.BadRequestError, match=said) as refused:
            create(client, upload(client, [line(1)]), endpoint=endpoint)
        assert refused.value.param == "endpoint"
