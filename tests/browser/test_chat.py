"""Conversations with the small model: what people do from the first message on."""

import json
import re
import time

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.timing  # a model answers within deadlines
TOKENS = 24  # of an answer, where nobody waits for its end
COUNT = "Count from one to thirty in words."

# What the page keeps.
CONVERSATIONS = """
const done = arguments[0], opening = indexedDB.open('headrace');
opening.onsuccess = () => {
  const all = opening.result.transaction('conversations').objectStore('conversations').getAll();
  all.onsuccess = () => done(all.result);
};
"""


def test_an_answer_appears_as_it_is_computed(page, server):
    page.open(server.url, 600).set("temperature", "0")  # drawn, it may end after a few words
    page.send("Tell me a story about a river.")
    lengths = set()
    page.until(lambda: lengths.add(len("".join(page.answers()))) or len(lengths) > 4, "a text that grows")
    page.idle()
    assert len(page.answers()[0]) >= max(lengths) > 0
    assert "tok/s" in page.all(".message.assistant .stats")[0].text
    body = page.last_body()
    assert body["messages"] == [{"role": "user", "content": "Tell me a story about a river."}] and body["stream"]


def test_stop_keeps_what_came_and_lets_the_server_go(page, server):
    page.open(server.url).set("temperature", "0")
    page.send("Tell me a very long story about a mill, its miller and the river.")
    page.until(lambda: len("".join(page.answers())) > 40, "some words")
    page.click(".send.stops")
    page.idle()
    text = page.answers()[0]
    assert "stopped" in page.all(".message.assistant .stats")[0].text
    server.wait_idle()
    assert page.answers()[0] == text


def test_escape_stops(page, server):
    page.open(server.url).send("Tell me a very long story about a lighthouse.")
    page.until(lambda: page.answers() and page.answers()[0], "words")
    page.wait("#message").send_keys(Keys.ESCAPE)
    page.idle()
    assert "stopped" in page.all(".message.assistant .stats")[0].text


def test_another_answer_is_another_branch(page, server):
    page.open(server.url, TOKENS).ask("Name a river.")
    first = page.answers()[0]
    page.button("Answer again")
    page.idle()
    assert page.wait(".branches").text.strip() == "2 / 2"
    second = page.answers()[0]
    page.button("Previous branch")
    assert page.answers() == [first] and page.wait(".branches").text.strip() == "1 / 2"
    page.button("Next branch")
    assert page.answers() == [second]


def edit(page, role, text):
    page.button("Edit", f".message.{role}")
    area = page.wait("textarea.edit")
    area.send_keys(Keys.CONTROL, "a")
    area.send_keys(text)
    page.click(".edit-buttons .primary")


def test_an_edited_message_is_a_branch_with_its_own_answer(page, server):
    page.open(server.url, TOKENS).ask("Name a river in France.")
    edit(page, "user", "Name a river in Egypt.")
    page.idle()
    assert page.messages("user") == ["Name a river in Egypt."]
    assert page.last_body()["messages"][-1]["content"] == "Name a river in Egypt."
    page.button("Previous branch", ".message.user")
    assert page.messages("user") == ["Name a river in France."]


def test_an_edited_answer_is_what_the_model_reads_next(page, server):
    page.open(server.url, TOKENS).ask("What is my name?")
    edit(page, "assistant", "Your name is Ada.")
    page.until(lambda: page.answers() == ["Your name is Ada."])
    page.ask("Say it again.")
    assert page.last_body()["messages"][1] == {"role": "assistant", "content": "Your name is Ada."}


def test_arrow_up_edits_the_last_message(page, server):
    page.open(server.url, TOKENS).ask("Hello")
    page.wait("#message").send_keys(Keys.ARROW_UP)
    assert page.wait("textarea.edit").get_attribute("value") == "Hello"
    page.wait("textarea.edit").send_keys(Keys.ESCAPE)
    assert not page.all("textarea.edit") and page.messages("user") == ["Hello"]


def test_an_answer_that_was_cut_goes_on_where_it_ended(page, server):
    page.open(server.url, TOKENS)
    page.set("max_tokens", "6")
    page.set("temperature", "0")
    page.ask(COUNT)
    first = page.answers()[0]
    assert "cut by its length" in page.all(".message.assistant .stats")[0].text
    page.button("Continue")
    page.idle()
    assert page.answers()[0].startswith(first) and len(page.answers()[0]) > len(first)
    assert page.last_body()["continue_final_message"] is True
    assert len(page.all(".message")) == 2


def test_a_reload_finds_the_conversation(page, server):
    page.open(server.url, TOKENS).ask("Name a colour.")
    text = page.answers()[0]
    page.driver.refresh()
    page.until(lambda: page.answers() == [text], "the answer from before")
    assert page.messages("user") == ["Name a colour."]
    assert page.driver.title == "Name a colour. – Headrace"
    page.ask("Another one.")
    assert len(page.last_body()["messages"]) == 3


def test_a_reload_in_an_answer_keeps_what_came(page, server):
    page.open(server.url).send("Tell me a very long story about a ship.")
    page.until(lambda: len("".join(page.answers())) > 200, "some words")
    time.sleep(1)  # it is saved every 400 ms
    page.driver.refresh()
    page.until(lambda: page.answers() and page.answers()[0], "what came before")
    assert page.messages("user") == ["Tell me a very long story about a ship."]


def test_conversations_are_listed_and_found_by_what_they_say(page, server):
    page.open(server.url, TOKENS).ask("Name a tree.")
    page.click(".side-link.new")
    page.until(lambda: not page.all(".message"), "an empty conversation")
    page.ask("Name a planet.")
    titles = lambda: [row.text for row in page.all(".row a") if row.is_displayed()]
    page.until(lambda: titles() == ["Name a planet.", "Name a tree."], "both, the newest first")
    page.all(".row a")[1].click()
    page.until(lambda: page.messages("user") == ["Name a tree."])
    search = page.wait("#search")
    search.send_keys("PLANET")
    page.until(lambda: titles() == ["Name a planet."])
    search.send_keys(" nowhere")
    page.until(lambda: page.all(".conversations .none"))
    assert page.all(".conversations .none")[0].text == "Nothing found"


def test_an_answer_goes_on_while_another_conversation_is_read(page, server):
    page.open(server.url, TOKENS).ask("Hi")
    page.click(".side-link.new")
    page.until(lambda: not page.all(".message"))
    page.set("max_tokens", "100")
    page.send("Tell me a story about a train.")
    page.until(lambda: len("".join(page.answers())) > 20)
    page.all(".row a")[1].click()
    page.until(lambda: page.messages("user") == ["Hi"])
    page.until(lambda: not server.metric("vllm:num_requests_running"), "the end of the other answer")
    page.all(".row a")[0].click()
    page.until(lambda: page.messages("user") == ["Tell me a story about a train."])
    page.idle()
    assert len(page.answers()[0]) > 20


def test_rename_delete_undo(page, server):
    page.open(server.url, TOKENS).ask("Hi")
    page.button("Rename: Hi")
    field = page.wait("dialog input")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("A greeting" + Keys.ENTER)
    page.until(lambda: page.all(".row a")[0].text == "A greeting")
    assert page.wait(".title").text == "A greeting"
    page.button("Delete: A greeting")
    page.until(lambda: not page.all(".row"))
    page.click(".toast button")
    page.until(lambda: [row.text for row in page.all(".row a")] == ["A greeting"])


def test_what_is_deleted_while_it_is_answered_stays_deleted(page, server):
    page.open(server.url, TOKENS)
    page.set("max_tokens", "1000")
    page.send("Tell me a story about a train.")
    page.until(lambda: len("".join(page.answers())) > 20)
    page.run("document.querySelector('.row .row-actions button:last-child').click()")
    page.until(lambda: not page.all(".row"))
    page.until(lambda: not server.metric("vllm:num_requests_running"), "the answer's end")
    page.driver.refresh()
    page.wait(".composer textarea")
    assert page.driver.execute_async_script(CONVERSATIONS) == []


def test_two_tabs_of_one_conversation_lose_nothing(page, server):
    page.open(server.url, TOKENS).ask("Hi")
    first = page.driver.current_window_handle
    page.until(lambda: "#/c/" in page.driver.current_url)
    url = page.driver.current_url
    page.driver.switch_to.new_window("tab")
    try:
        page.driver.get(url)
        page.until(lambda: page.messages("user") == ["Hi"])
        page.ask("In the second")
    finally:
        page.driver.close()
        page.driver.switch_to.window(first)
    page.ask("In the first")
    (conversation,) = page.driver.execute_async_script(CONVERSATIONS)
    texts = [message["text"] for message in conversation["messages"].values() if message["role"] == "user"]
    assert sorted(texts) == ["Hi", "In the first", "In the second"]


def test_a_message_is_deleted_with_what_followed_and_comes_back(page, server):
    page.open(server.url, TOKENS).ask("Hi")
    page.ask("Bye")
    page.button("Delete", ".message.user:nth-of-type(3)")
    page.until(lambda: page.messages("user") == ["Hi"])
    page.click(".toast button")
    page.until(lambda: page.messages("user") == ["Hi", "Bye"])


def test_settings_reach_the_request(page, server):
    page.open(server.url, TOKENS)
    for name, value in {"system": "Answer in one word.", "temperature": "0.5", "top_p": "0.9", "top_k": "40", "min_p": "0.1", "max_tokens": "5", "seed": "7",
                        "repetition_penalty": "1.1", "presence_penalty": "0.2", "frequency_penalty": "0.3", "stop": "END\nSTOP"}.items():
        page.set(name, value)
    page.ask("Name a river.")
    body = page.last_body()
    assert body["messages"][0] == {"role": "system", "content": "Answer in one word."}
    wanted = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "max_tokens": 5, "seed": 7, "repetition_penalty": 1.1, "presence_penalty": 0.2,
              "frequency_penalty": 0.3, "stop": ["END", "STOP"], "model": "smol"}
    assert {name: body.get(name) for name in wanted} == wanted
    assert [chip.text for chip in page.all(".modes .chip")] == ["System prompt"]
    page.driver.refresh()
    page.until(lambda: page.messages("user"))
    assert page.run("return document.getElementById('seed').value") == "7"


def test_a_value_that_the_server_refuses_is_shown_with_its_reason(page, server):
    page.expected_errors = ("400",)
    page.open(server.url, TOKENS)
    page.set("top_p", "3")
    page.send("Hi")
    assert "top_p" in page.wait(".problem").text
    page.set("top_p", "")
    page.click(".problem button")
    page.idle()
    assert not page.all(".message .problem") and page.answers()[0]


def test_an_answer_keeps_to_a_schema(page, server):
    page.open(server.url)
    page.set("format", "schema")
    schema = {"type": "object", "properties": {"river": {"type": "string", "maxLength": 20}, "miles": {"type": "integer", "maximum": 9999}}, "required": ["river", "miles"], "additionalProperties": False}
    page.set("schema", json.dumps(schema))
    assert page.all("#schema-problem")[0].get_attribute("textContent") == "Valid"
    assert [chip.text for chip in page.all(".modes .chip")] == ["JSON schema"]
    page.ask("A river and its length in miles.")
    answer = json.loads(page.answers()[0])
    assert set(answer) == {"river", "miles"} and isinstance(answer["miles"], int)


def test_a_schema_that_is_none_is_told_before_and_when_it_is_sent(page, server):
    page.open(server.url, TOKENS)
    page.set("format", "schema")
    page.set("schema", '{"type": ')
    assert "wrong" in page.all("#schema-problem")[0].get_attribute("class")
    page.send("Hi")
    assert page.wait(".problem").text.startswith("JSON schema:")


def test_probabilities_of_tokens(page, server):
    page.open(server.url, TOKENS)
    page.set("max_tokens", "12")
    page.click("#logprobs")
    page.ask("What is the capital of France?")
    assert page.last_body()["logprobs"] is True
    tokens = page.all(".tok")
    assert len(tokens) >= 5
    tip = lambda: page.run("return document.querySelector('.token-tip').hidden ? '' : document.querySelector('.token-tip').innerText")
    page.run("arguments[0].dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))", tokens[2])
    rows = [row for row in tip().split("\n") if "%" in row]
    assert len(rows) >= 2
    page.wait(".tokens").send_keys(Keys.ARROW_RIGHT)
    assert "at" in page.all(".tok")[3].get_attribute("class").split()
    assert "%" in page.all(".probabilities [role=status]")[0].get_attribute("textContent")
    page.wait(".tokens").send_keys(Keys.ESCAPE)
    assert tip() == ""
    page.button("Probabilities", ".message.assistant")
    page.until(lambda: page.all(".message.assistant .markdown"))


def test_files_are_sent_as_text(page, server, tmp_path):
    (tmp_path / "notes.py").write_text("x = '''```'''\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\xff")
    page.open(server.url, TOKENS)
    picker = page.all(".composer input[type=file]")[0]
    picker.send_keys(str(tmp_path / "picture.png"))
    page.until(lambda: any("picture.png is not a text file" in toast.text for toast in page.all(".toast")))
    picker.send_keys(str(tmp_path / "notes.py"))
    page.until(lambda: page.all(".shelf .chip"))
    page.set("max_tokens", "4")
    page.ask("What is this?")
    assert page.last_body()["messages"][0]["content"] == "notes.py:\n````\nx = '''```'''\n\n````\n\nWhat is this?"
    assert not page.all(".shelf .chip")
    assert page.all(".message.user .file summary")[0].text == "notes.py"


def test_export_and_import(page, server, tmp_path):
    page.open(server.url, TOKENS)
    page.set("max_tokens", "4")
    page.ask("Hi")
    page.button("Answer again")
    page.idle()
    page.run("URL.createObjectURL = (blob) => (window.kept = blob, 'blob:none')")
    page.run("HTMLAnchorElement.prototype.click = () => {}")
    page.all(".side-foot button")[1].click()
    page.until(lambda: page.run("return Boolean(window.kept)"))
    text = page.driver.execute_async_script("window.kept.text().then(arguments[arguments.length - 1])")
    exported = json.loads(text)["conversations"]
    assert len(exported) == 1 and len(exported[0]["messages"]) == 3
    page.button("Delete: Hi")
    page.until(lambda: not page.all(".row"))
    (tmp_path / "all.json").write_text(text)
    (tmp_path / "bad.json").write_text('{"conversations": [{"messages": {"a": {"role": "root", "parent": ""}}}]}')
    picker = page.all(".side-foot input[type=file]")[0]
    picker.send_keys(str(tmp_path / "bad.json"))
    page.until(lambda: any("role: user, assistant or tool is expected" in toast.text for toast in page.all(".toast")))
    assert not page.all(".row")
    picker.send_keys(str(tmp_path / "all.json"))
    page.until(lambda: page.all(".row a"))
    page.all(".row a")[0].click()
    page.until(lambda: page.messages("user") == ["Hi"])
    assert page.wait(".branches").text.strip() == "2 / 2"


def test_the_dashboard_tells_of_the_server(page, server):
    page.open(server.url, TOKENS).ask("Name three rivers.")
    page.click('.side-link[href="#/dashboard"]')
    ttft = lambda: [cell.text for row in page.all(".figures tbody tr") if row.text.startswith("TTFT") for cell in row.find_elements(By.TAG_NAME, "td")]
    page.until(lambda: ttft() and ttft()[0].endswith(" ms"), "the time to the first token")
    assert int(ttft()[-1].replace(",", "")) >= 1
    page.until(lambda: page.all(".plot .line.c1")[0].get_attribute("d").count("L") >= 2, "a line that grows")
    assert [tile.text for tile in page.all(".tile-name")] == ["Running", "Waiting", "KV cache", "Prefix hits", "Output", "Prompt"]
    page.until(lambda: "smol" in page.all(".facts")[0].text, "the model's name")
    page.driver.refresh()
    page.wait(".dashboard")
    page.driver.back()


def test_the_key_is_asked_for_and_goes_with_the_tab(page, start_server):
    page.expected_errors = ("401", "ERR_CONNECTION")  # the server ends before the page does
    running = start_server("--api-key", "secret")
    page.open(running.url, TOKENS)
    page.wait("dialog input[type=password]").send_keys("wrong" + Keys.ENTER)
    page.until(lambda: "does not know this key" in page.wait("dialog").text)
    page.wait("dialog input[type=password]").send_keys("secret" + Keys.ENTER)
    page.until(lambda: not page.all("dialog"))
    page.ask("Hi")
    assert page.run("return [sessionStorage['headrace.key'], localStorage['headrace.key'] ?? null]") == ["secret", None]
    page.click("#remember-key")
    assert page.run("return [sessionStorage['headrace.key'] ?? null, localStorage['headrace.key']]") == [None, "secret"]
    assert all("secret" not in url for _, url, _ in page.requests())


def test_a_server_that_is_gone_is_told_and_found_again(page, start_server):
    page.expected_errors = ("ERR_CONNECTION",)
    running = start_server()
    page.open(running.url, TOKENS).ask("Hi")
    running.kill()
    page.send("Are you there?")
    assert page.wait(".message .problem").text
    assert page.messages("user") == ["Hi", "Are you there?"]


def test_the_first_load_is_quick(page, server):
    page.open(server.url, TOKENS)
    page.driver.refresh()
    page.wait("#message")
    timing = page.run("const [entry] = performance.getEntriesByType('navigation'); return [entry.responseEnd, performance.getEntriesByType('paint').at(-1)?.startTime]")
    print(f"page: document after {timing[0]:.0f} ms, painted after {timing[1]:.0f} ms")
    assert timing[1] < 3000  # generous: machines that test are busy


def test_the_dashboard_shows_steps_and_the_log(page, start_server):
    running = start_server("--log-level", "info")
    page.open(running.url, TOKENS).ask("Name three rivers.")
    page.click('.side-link[href="#/dashboard"]')
    page.until(lambda: len(page.run("return [...document.querySelectorAll('.bar')].map((bar) => bar.getAttribute('d')).join('')")) > 40, "bars of steps")
    assert re.match(r"#\d+ · .+ · \d+ / \d+$", page.wait(".told").text)
    page.until(lambda: "/v1/chat/completions" in page.wait(".log").text, "a line of the log")
    assert "rivers" not in page.wait(".log").text
    lines = page.wait(".log").text.splitlines()
    assert len(lines) == len(set(lines))


def test_with_several_keys_the_dashboard_tells_of_each_but_shows_no_log(page, start_server, tmp_path):
    page.expected_errors = ("401", "403", "ERR_CONNECTION")
    keys = tmp_path / "keys"
    keys.write_text("".join(json.dumps({"key": f"secret-{name}", "name": name}) + "\n" for name in ("ann", "bob")))
    keys.chmod(0o600)
    running = start_server("--api-key-file", str(keys))
    page.open(running.url, "2000")
    page.wait("dialog input[type=password]").send_keys("secret-ann" + Keys.ENTER)
    page.until(lambda: not page.all("dialog"))
    page.set("temperature", "0")
    page.send("Tell me a very long story about a mill, its miller and the river.")
    page.until(lambda: page.answers() and page.answers()[0], "the beginning of an answer")
    page.click('.side-link[href="#/dashboard"]')
    rows = lambda: [row.text for row in page.all(".figures tbody tr") if row.text.startswith(("ann", "bob"))]
    page.until(lambda: rows() == ["ann 1 0 0 0"], "a tenant's request")
    page.requests()
    assert sum("/debug/log" in url for _, url, _ in page.asked) == 1  # it was refused, and is not asked for again
    assert sum("/debug/steps" in url for _, url, _ in page.asked) >= 1
    assert not any(node.is_displayed() for node in page.all(".log"))
    page.driver.get("about:blank")
