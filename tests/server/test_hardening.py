"""What SECURITY.md says of the running program: argv, key files, seccomp, headers of browsers."""

import ctypes
import http.client
import json
import pathlib
import re
import shutil
import subprocess
import urllib.parse

import openai
import pytest

from conftest import BINARY, MODEL, NAME, ROOT

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def request(server, method, path, body=None, headers=None):
    """The status and the body of an answer; nothing is added to the headers but what HTTP needs."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=60)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def use_all_of_it(server, **client):
    """Answers, streams, files, errors and metrics: what a ready server does."""
    client = server.client(**client)
    whole = client.chat.completions.create(model=NAME, messages=QUESTION, max_tokens=16, temperature=0)
    stream = client.chat.completions.create(model=NAME, messages=QUESTION, max_tokens=16, temperature=0, stream=True)
    text = "".join(part.choices[0].delta.content or "" for part in stream if part.choices)
    assert text == whole.choices[0].message.content and "Paris" in text
    lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 2}} for i in range(3)]
    file = client.files.create(file="\n".join(map(json.dumps, lines)).encode(), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    while batch.status not in ("completed", "failed"):
        batch = client.batches.retrieve(batch.id)
    assert batch.request_counts.completed == 3
    assert len(client.files.content(batch.output_file_id).text.splitlines()) == 3
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=NAME, prompt="x", temperature=-1)


def test_keys_are_not_shown_by_ps(start_server):
    server = start_server("--api-key", "s3cret-one", "--api-key=s3cret-two", "--metrics-key", "s3cret-three")
    shown = pathlib.Path(f"/proc/{server.child.pid}/cmdline").read_bytes()
    assert b"--api-key" in shown and b"s3cret" not in shown
    for key in ("s3cret-one", "s3cret-two"):
        assert server.client(api_key=key).models.list().data
    assert request(server, "GET", "/metrics")[0] == 401
    assert request(server, "GET", "/metrics", headers={"Authorization": "Bearer s3cret-three"})[0] == 200


def test_key_of_our_own_environment_variable(start_server):
    server = start_server(environment={"HEADRACE_API_KEY": "ours", "VLLM_API_KEY": "other"})
    assert server.client(api_key="ours").models.list().data
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="other").models.list()


def test_open_addresses_and_open_key_files_are_told(start_server, tmp_path):
    log = tmp_path / "log"
    start_server("--host", "0.0.0.0", log=log)
    assert re.search("whoever reaches 0.0.0.0 may use this server", log.read_text())
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    keys.chmod(0o644)
    start_server("--host", "0.0.0.0", "--api-key-file", keys, log=log)
    assert "whoever" not in log.read_text() and f"chmod 600 {keys}" in log.read_text()
    keys.chmod(0o600)
    start_server("--host", "0.0.0.0", "--api-key-file", keys, log=log)
    assert "warning" not in log.read_text().lower()
    keys.chmod(0o602)
    refused = subprocess.run([BINARY, "serve", "-m", MODEL, "--api-key-file", str(keys)], capture_output=True, text=True)
    assert refused.returncode == 1 and "anybody may write it" in refused.stderr


def test_what_browsers_send_for_other_sites_is_refused(server):
    body = json.dumps({"model": NAME, "prompt": "a", "max_tokens": 1})
    page = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    assert request(server, "POST", "/v1/completions", body, page)[0] == 403
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, text = request(server, "POST", "/v1/completions", body, {"Sec-Fetch-Site": "cross-site", **form})
    assert status == 415 and "Content-Type: application/json" in text
    # `curl -d` says that it is a form, too, and is no browser.
    assert request(server, "POST", "/v1/completions", body, form)[0] == 200
    assert request(server, "POST", "/v1/completions", body)[0] == 200
    status, text = request(server, "GET", "/v1/models", headers={"Host": "evil.example:8000"})
    assert status == 403 and "--allowed-hosts" in text


def test_allowed_hosts_and_origins(start_server):
    server = start_server("--allowed-hosts", "llm.example,other.example", "--allowed-origins", '["https://ui.example"]')
    for host in ("llm.example:443", "other.example", "localhost"):
        assert request(server, "GET", "/v1/models", headers={"Host": host})[0] == 200
    assert request(server, "GET", "/v1/models", headers={"Host": "evil.example"})[0] == 403
    body = json.dumps({"prompt": "a", "max_tokens": 1})
    for origin, expected in (("https://ui.example", 200), ("https://evil.example", 403)):
        headers = {"Origin": origin, "Content-Type": "application/json"}
        assert request(server, "POST", "/v1/completions", body, headers)[0] == expected


def test_a_bad_trusted_proxy_is_named():
    refused = subprocess.run([BINARY, "serve", "-m", MODEL, "--trusted-proxy", "10.0.0.0/40"], capture_output=True, text=True)
    assert refused.returncode == 1 and "--trusted-proxy" in refused.stderr and "10.0.0.0/40" in refused.stderr


# --- seccomp -------------------------------------------------------------------------------------


def threads_under_seccomp(pid):
    """Of each thread whether a filter is set (2), from /proc."""
    statuses = [path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/status")]
    return [re.search(r"^Seccomp:\s+(\d)", text, re.MULTILINE)[1] == "2" for text in statuses]


def test_a_ready_server_serves_under_its_filter(start_server, tmp_path):
    server = start_server("--seccomp", "--batch-dir", tmp_path / "batches", "--kv-save", tmp_path / "kv")
    # The filter is set between ready and its line on stdout.
    for line in server.child.stdout:
        if line.startswith(b"ready:"):
            break
    assert all(threads_under_seccomp(server.child.pid))
    use_all_of_it(server)
    assert server.terminate() == 0
    assert (tmp_path / "kv").stat().st_size > 0


def compile_profile(path):
    """The profile of a container as a program for seccomp(2): a list of allowed numbers, else EPERM."""
    header = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text()
    numbers = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header)}
    profile = json.loads(path.read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed = [numbers[name] for rule in profile["syscalls"] for name in rule["names"]]
    load, jump_if_equal, give = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 0)]
    for number in allowed:
        program += [(jump_if_equal, 0, 1, number), (give, 0, 0, 0x7FFF0000)]
    return program + [(give, 0, 0, 0x00050000 | 1)]


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(Instruction))]


def run_under(program):
    """Sets the filter in a child before it becomes the server."""
    instructions = (Instruction * len(program))(*program)
    filter_ = Program(len(program), instructions)
    libc = ctypes.CDLL(None, use_errno=True)

    def set_filter():
        set_no_new_privs, set_seccomp, mode_filter = 38, 22, 2
        assert libc.prctl(set_no_new_privs, 1, 0, 0, 0) == 0
        assert libc.prctl(set_seccomp, mode_filter, ctypes.byref(filter_)) == 0

    return set_filter


def test_the_profile_for_containers_lets_it_start_and_serve(start_server, tmp_path):
    profile = run_under(compile_profile(ROOT / "deploy" / "seccomp.json"))
    unshare = subprocess.run(["unshare", "--user", "true"], preexec_fn=profile, capture_output=True)
    assert unshare.returncode != 0, "the profile lets new name spaces be made"
    server = start_server("--batch-dir", tmp_path / "batches", "--kv-save", tmp_path / "kv", preexec=profile)
    assert all(threads_under_seccomp(server.child.pid))
    use_all_of_it(server)
    assert server.terminate() == 0


# --- The page ------------------------------------------------------------------------------------


def test_every_defence_of_the_page_has_its_test():
    page = (ROOT / "SECURITY.md").read_text()
    rows = re.findall(r"^\| `(H-[a-z0-9-]+)` \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    assert len(rows) > 20 and len({tag for tag, _ in rows}) == len(rows)
    sources = [*ROOT.glob("src/**/*_test.cc"), *ROOT.glob("src/**/*_fuzz.cc"), *ROOT.glob("tests/**/*.py")]
    text = "\n".join(path.read_text() for path in sources)
    for tag, tests in rows:
        names = re.findall(r"`([^`]+)`", tests)
        assert names, f"{tag} names no test"
        for name in names:
            suite, _, case = name.partition(".")
            pattern = rf"\bTEST(_F)?\({suite}, {case}\)" if case else rf"\bdef {name}\(|\b{name}\b"
            found = re.search(pattern, text) or (ROOT / "tests" / "fuzz" / "corpus" / name).exists()
            assert found, f"{tag}: there is no test {name}"


def test_the_unit_for_systemd_is_sound():
    unit = ROOT / "deploy" / "headrace.service"
    command = re.search(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[1]
    assert "--api-key " not in command, "ps would show it"
    help_page = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True).stdout
    flags = re.findall(r"--[a-z-]+", command)
    assert "--seccomp" in flags and all(flag in help_page for flag in flags)
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    # Exit code 0: below the given exposure, of which 100 is all of it.
    judged = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", unit], capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout
    said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True).stderr
    assert all("is not executable" in line for line in said.splitlines()), said
