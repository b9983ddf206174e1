"""The page for everybody: axe's rules, the keyboard, phones, themes, languages."""

import re

import pytest
from axe_selenium_python import Axe
from selenium.webdriver.common.keys import Keys

ANSWER = "# Title\n\nText with `code` and [a link](https://example.org).\n\n```python\ndef f():\n    return 'x'  # why\n```\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n> quoted\n\n- [x] done\n\n$$x^2$$"


def violations(page):
    axe = Axe(page.driver)
    axe.inject()
    found = axe.run()["violations"]
    return [f"{rule['id']}: {node['html'][:160]} {node['failureSummary'][:200]}" for rule in found if rule["impact"] in ("serious", "critical") for node in rule["nodes"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(page, scripted_url, theme):
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
    page.open(scripted_url(f"<think>Hm.</think>{ANSWER}"))
    page.wait(".greeting")
    assert violations(page) == []
    page.ask("Show me everything.")
    page.click(".thinking summary")
    assert violations(page) == []
    page.click(".settings-button")
    page.set("format", "schema")
    page.click(".settings details summary")
    assert violations(page) == []
    page.wait("#message").send_keys(Keys.CONTROL, "/")
    page.wait("dialog")
    assert violations(page) == []
    page.click("dialog button")
    page.click('.side-link[href="#/dashboard"]')
    page.wait(".figures")
    assert violations(page) == []


def test_the_keyboard_is_enough(page, scripted_url):
    page.open(scripted_url("Yes."))
    assert page.run("return document.activeElement.id") == "message"
    page.send("First line")
    page.idle()
    area = page.wait("#message")
    area.send_keys("one" + Keys.SHIFT + Keys.ENTER + Keys.NULL + "two")
    assert area.get_attribute("value") == "one\ntwo"
    area.send_keys(Keys.CONTROL, "k")
    assert page.run("return document.activeElement.id") == "search"
    page.wait("#search").send_keys(Keys.CONTROL, ".")
    page.wait(".settings")
    assert page.run("return document.activeElement.closest('.settings') !== null")
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: not page.all(".settings")[0].is_displayed())
    page.wait("#message").send_keys(Keys.CONTROL, Keys.SHIFT, "o")
    page.until(lambda: not page.all(".message"))
    page.driver.switch_to.active_element.send_keys(Keys.TAB)
    page.run("document.activeElement.blur()")
    page.driver.switch_to.active_element.send_keys("?")
    assert "Keyboard shortcuts" in page.wait("dialog").text
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog"))


def test_every_control_has_a_name_and_can_be_reached(page, scripted_url):
    page.open(scripted_url("Yes.")).ask("Hi")
    nameless = page.run("""return [...document.querySelectorAll('button, input, select, textarea, a')].filter((node) => !node.matches('[aria-hidden=true]')
      && !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length || node.title)).map((node) => node.outerHTML)""")
    assert nameless == []
    assert "Answer: Yes." in [node.get_attribute("textContent") for node in page.all("[role=status]")]


@pytest.mark.parametrize("width", [320, 390, 768])
def test_phone_widths(page, scripted_url, width):
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": True})
    page.open(scripted_url(ANSWER + "\n\n" + "x" * 300)).ask("A long line without a space: " + "y" * 200)
    wide = page.run("return [...document.querySelectorAll('.messages *')].filter((node) => !node.closest('pre, .table, .math') && node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 100))")
    assert wide == []
    assert page.run("return document.documentElement.scrollWidth") <= width
    assert not page.all(".sidebar")[0].is_displayed()
    page.click(".menu-button")
    page.until(lambda: page.all(".sidebar")[0].is_displayed())
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: not page.all(".sidebar")[0].is_displayed())
    page.click(".settings-button")
    page.wait(".settings")
    page.click(".scrim")
    page.until(lambda: not page.all(".settings")[0].is_displayed())


def test_themes_are_kept(page, scripted_url):
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]})
    page.open(scripted_url("Yes."))
    ground = lambda: page.run("return getComputedStyle(document.body).backgroundColor")
    light = ground()
    page.click(".theme-button")
    dark = ground()
    assert dark != light
    page.driver.refresh()
    page.wait("#message")
    assert ground() == dark
    page.set("theme", "")
    assert ground() == light


def test_every_text_is_there_in_ten_languages(page, scripted_url):
    page.open(scripted_url("Yes."))
    languages, words = page.call("words.js", "async (m) => [m.kLanguages, m.kWords]")
    assert len(languages) == 10
    holes = lambda text: sorted(re.findall(r"\{\w+\}", text))
    for key, row in words.items():
        assert len(row) == len(languages) and all(row), key
        assert all(holes(text) == holes(row[0]) for text in row), key
    used = page.driver.execute_async_script("""const done = arguments[arguments.length - 1];
      Promise.all(performance.getEntriesByType('resource').map((entry) => entry.name).filter((name) => name.endsWith('.js')).map((name) => fetch(name).then((file) => file.text()))).then((files) => done(files.join('\\n')))""")
    named = set(re.findall(r"\bt\('(\w+)'", used))
    assert len(named) > 100 and named <= set(words), named - set(words)
    listed = set(re.findall(r"'(\w+)'", used)) | {key for key in words if re.search(r"_(hint|none)$|^effort_", key)}
    assert set(words) <= listed, set(words) - listed


@pytest.mark.parametrize("code, send", [("de", "Senden"), ("fr", "Envoyer"), ("es", "Enviar"), ("pt", "Enviar"), ("it", "Invia"), ("ru", "Отправить"), ("zh", "发送"), ("ja", "送信"), ("ko", "보내기")])
def test_languages(page, scripted_url, code, send):
    page.open(scripted_url("Yes."))
    page.run("localStorage.setItem('headrace.language', JSON.stringify(arguments[0]))", code)
    page.driver.refresh()
    page.wait("#message")
    assert page.run("return document.documentElement.lang") == code
    assert page.all(".send")[0].get_attribute("aria-label") == send


def test_without_javascript_the_page_says_what_to_do(page, scripted_url):
    import httpx

    text = httpx.get(scripted_url("Yes.") + "/", headers={"Accept": "text/html"}).text
    inside = re.search(r"<noscript>(.*)</noscript>", text, re.DOTALL)[1]
    assert "curl" in inside and "/v1/chat/completions" in inside
    page.url = None
