#!/usr/bin/env python3
"""Writes template_cases.jsonl: small templates and what Python's jinja2 makes of them.

Needs jinja2 3.1. The environment is the one that Hugging Face uses for chat templates.
Run: python3 tests/data/text/make_template_cases.py
"""
import datetime
import json
import os

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("run")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def run(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(pattern):
    return datetime.datetime.fromtimestamp(1_700_000_000, datetime.timezone.utc).strftime(pattern)


ENV = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
ENV.filters["tojson"] = tojson
ENV.globals["raise_exception"] = raise_exception
ENV.globals["strftime_now"] = strftime_now

VARS = {
    "n": 3, "z": 0, "f": 2.5, "t": True, "nothing": None, "s": "Hello, World", "u": "naïve 日本 😀",
    "sp": "  padded \n", "lines": "one\ntwo\n\nfour", "e": "", "xs": [3, 1, 2], "none_list": [],
    "words": ["pear", "Apple", "fig", "apple"], "d": {"b": 1, "a": 2, "items": [1], "key": "v"},
    "html": "<a href='x'>&\"</a>", "big": 12345678901234,
    "users": [{"name": "Ann", "age": 31, "ok": True, "tags": ["x"]},
              {"name": "bob", "age": 25, "ok": False, "tags": []},
              {"name": "Cy", "age": 31}],
    "nested": {"list": [{"k": [1, {"deep": "é"}]}], "null": None, "num": 1.0, "t": True},
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"},
                 {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "image"}]}],
}

CASES = r"""
plain
{{ n }} {{ z }} {{ f }} {{ t }} {{ nothing }} {{ s }} {{ u }} {{ missing }}
{{ 1 }}{{ -1 }}{{ +1 }}{{ 1_000 }}{{ 0x1F }}{{ 0b101 }}{{ 0o17 }}{{ 1.5 }}{{ 1e3 }}{{ 1.5e-7 }}{{ 2E+2 }}
{{ 'a' "b" 'c' }}{{ "tab\tnl\nq\"b\\x\x41\u00e9\U0001F600\101" }}{{ 'it\'s' }}{{ '\q' }}
{{ true }}{{ True }}{{ false }}{{ False }}{{ none }}{{ None }}
{{ [1, 'a', none, true, 1.0, [2], (3,), {'k': 'v'}] }}
{{ (1, 2) }}{{ (1,) }}{{ () }}{{ 1, 2 }}{{ [] }}{{ {} }}{{ {'a': 1, 'b': [1,2,],} }}
{{ 1 + 2 }} {{ 5 - 7 }} {{ 3 * 4 }} {{ 7 / 2 }} {{ 8 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}
{{ 1.5 + 1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 / 3 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1e100 }} {{ 123456789.125 }} {{ 0.1 + 0.2 }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }} {{ 'a' * 0 }}{{ 'a' * -1 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] }} {{ 1 ~ 2 + 3 }} {{ 1 + 2 ~ 3 }}
{{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' == 'a' }} {{ [1] == [1] }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == none }} {{ missing == missing }} {{ missing == none }} {{ 1 != 2 }}
{{ 1 < 2 }} {{ 'a' < 'b' }} {{ 'B' < 'a' }} {{ 2 >= 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 > 2 }} {{ [1, 2] < [1, 3] }} {{ (1,) <= (1, 0) }} {{ 3 > 2.5 }}
{{ 1 in xs }} {{ 9 not in xs }} {{ 'ell' in s }} {{ 'a' in d }} {{ 'q' in d }} {{ '' in 'a' }} {{ 1 in (1, 2) }} {{ 'x' in missing }} {{ not 1 in xs }}
{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or none }} {{ not 0 }} {{ not 'a' }} {{ not not 1 }} {{ 1 or 2 and 0 }} {{ not 1 == 2 }}
{{ 'y' if t else 'n' }} {{ 'y' if z else 'n' }} {{ 'y' if z }} {{ 1 if z else 2 if z else 3 }} {{ (1 if t) }}
{{ xs[0] }} {{ xs[-1] }} {{ xs[9] }} {{ xs[1:] }} {{ xs[:-1] }} {{ xs[::-1] }} {{ xs[::2] }} {{ xs[5:] }} {{ xs[-2:] }} {{ xs[2:0:-1] }} {{ s[:5] }} {{ s[::-1] }} {{ u[-1] }} {{ u[0:3] }} {{ (1,2,3)[1:] }} {{ xs.0 }} {{ xs[:100] }} {{ s[-100:3] }}
{{ d.a }} {{ d['a'] }} {{ d.nope }} {{ d['nope'] }} {{ d['items'] }} {{ nested.list[0].k[1].deep }} {{ nested['list'][0]['k'][0] }}
{{ d.get('a') }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }} {{ d.items is defined }}
{{ none.x }}|{{ n.x }}|{{ s.nope }}|{{ xs.nope }}
{{ messages[0].role }} {{ messages[0]['content'] }} {{ messages[-1].content[0].text }} {{ messages | length }}
{% if t %}yes{% endif %}{% if z %}a{% elif n == 3 %}b{% elif n %}c{% else %}d{% endif %}{% if none_list %}x{% else %}empty{% endif %}
{% for x in xs %}{{ x }},{% endfor %}
{% for x in xs %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.depth0 }}/{{ loop.previtem }}/{{ loop.nextitem }};{% endfor %}
{% for x in none_list %}a{% else %}none{% endfor %}{% for x in xs %}{% else %}no{% endfor %}
{% for x in xs if x > 1 %}{{ loop.index }}:{{ x }}:{{ loop.length }} {% endfor %}{% for x in xs if x > 9 %}x{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for c in 'aé😀' %}[{{ c }}]{% endfor %}{% for x in missing %}x{% else %}u{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}
{% for a in [1,2] %}{% for b in [3,4] %}{{ loop.index }}{{ loop.depth }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in xs %}{{ y }}{% set y = x %}{{ y }}{% endfor %}[{{ y }}]
{% for x in xs %}{{ loop.cycle('odd', 'even') }} {% endfor %}
{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}
{% if t %}{% set q = 5 %}{% endif %}{{ q }}{% for x in [1] %}{% set q = 6 %}{% endfor %}{{ q }}
{% set ns = namespace(a=1, b='x') %}{% for x in xs %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{% set ns.c = 4 %}{{ ns.c }}
{% set ns = namespace({'p': 1}, q=2) %}{{ ns.p }}{{ ns.q }}{% set ns2 = namespace() %}{% set ns2.z = ns %}{{ ns2.z.p }}
{% set x %}a {{ n }} b{% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset %}[{{ y }}]
{% macro m(a, b=2, c='z') %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 5) }}{{ m(1, c=7) }}{{ m(a=1, b=3) }}{{ m() }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1) | int }}{% endif %}{% endmacro %}{{ fact(5) }}
{% macro outer(x) %}{% macro inner(y) %}[{{ x }}{{ y }}]{% endmacro %}{{ inner(2) }}{% endmacro %}{{ outer(1) }}
{% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, k=3) }}{% macro g() %}{{ n }}{{ later }}{% endmacro %}{% set later = 9 %}{{ g() }}
{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}in {{ n }}{% endcall %}
{% macro each(items) %}{% for i in items %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) each(xs) %}{{ i }}={{ x }};{% endcall %}
{% macro d1(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ d1(3) }}{{ d1(*[1, 2]) }}{{ d1(**{'a': 7}) }}{{ m is defined }}{{ d1 is callable }}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}[{{ a }}]{% with %}{% set k = 3 %}{{ k }}{% endwith %}{{ k }}
{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | upper %}aXa{% endfilter %}
{% generation %}gen {{ n }}{% endgeneration %}{% generation %}{% set gg = 1 %}{% endgeneration %}{{ gg }}
{# comment #}a{# multi
line #}b{#- strip -#}   c
  {% if t %}
    body
  {% endif %}
tail
a
  {%- if t -%}
    body
  {%- endif -%}
tail
a   {%+ if t %} x {% endif +%}
b
  {{ n }}
  {{- n }}  {{ n -}}
  z
{% raw %}{{ not }} {% parsed %}{% endraw %}x{%- raw -%}  y  {%- endraw -%}  z
{{ '}}' }}{{ "{%" }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':1}}}
{% set a = '%}' %}{{ a }}{% if '}}' in '{{ }}' %}ok{% endif %}
{{ s | upper }} {{ s | lower }} {{ 'hello world-foo (bar) x.y' | title }} {{ 'hELLO' | capitalize }} {{ u | upper }} {{ 'straße' | upper }}
[{{ sp | trim }}] [{{ 'xxaxx' | trim('x') }}] [{{ s | length }}] [{{ u | length }}] [{{ xs | count }}] [{{ d | length }}] [{{ missing | length }}]
{{ xs | first }} {{ xs | last }} {{ e | first }} {{ s | first }} {{ none_list | last }} {{ d | first }}
{{ xs | join }} {{ xs | join(', ') }} {{ users | join('-', attribute='name') }} {{ 'abc' | join('.') }} {{ none_list | join('x') }}
{{ missing | default('dd') }} {{ e | default('dd') }} {{ e | default('dd', true) }} {{ z | d(7, boolean=true) }} {{ missing | default }} {{ nothing | default('x') }}
{{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ 'aaa' | replace('a', 'b', count=2) }} {{ 123 | replace(2, 5) }} {{ 'ab' | replace('', '-') }}
{{ 'abc' | list }} {{ d | list }} {{ (1, 2) | list }} {{ missing | list }}
{{ xs | map('string') | list }} {{ words | map('upper') | join(' ') }} {{ users | map(attribute='name') | list }} {{ users | map(attribute='ok', default='?') | list }} {{ users | map(attribute='tags.0') | list }} {{ xs | map('default', 1) | list }}
{{ xs | select('odd') | list }} {{ xs | reject('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ [0, 1] | reject | list }} {{ xs | select('gt', 1) | list }} {{ xs | select('in', [1, 2]) | list }}
{{ users | selectattr('ok') | map(attribute='name') | list }} {{ users | rejectattr('ok') | map(attribute='name') | list }} {{ users | selectattr('age', 'equalto', 31) | map(attribute='name') | list }} {{ users | selectattr('ok', 'defined') | list | length }} {{ messages | selectattr('role', '==', 'user') | list | length }}
{{ xs | sort }} {{ xs | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ users | sort(attribute='age') | map(attribute='name') | list }} {{ 'hello' | sort }}
{{ words | unique | list }} {{ words | unique(true) | list }} {{ [1, 1.0, 2] | unique | list }} {{ users | unique(attribute='age') | map(attribute='name') | list }}
{{ d | items | list }} {{ d | dictsort }} {{ {'a': 3, 'b': 1} | dictsort(by='value') }} {{ {'a': 3, 'b': 1} | dictsort(reverse=true) }} {{ missing | items | list }}
{{ nested | tojson }} {{ d | tojson }} {{ u | tojson }} {{ html | tojson }} {{ 'a\nb\t"\\\x01\x7f' | tojson }} {{ none | tojson }} {{ 1.0 | tojson }} {{ (1, 2) | tojson }}
{{ nested | tojson(indent=2) }}{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=4) }}{{ [1, [2]] | tojson(indent=0) }}
{{ u | tojson(ensure_ascii=true) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ {1: 2, none: 3, true: 4} | tojson }}
{{ '42' | int }} {{ '42.9' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ 'ff' | int(base=16) }} {{ '0xff' | int(0, 16) }} {{ ' 5 ' | int }} {{ true | int }} {{ none | int }} {{ '-7' | int }} {{ '1e3' | int }}
{{ '1.5' | float }} {{ 'x' | float }} {{ 'x' | float(2.0) }} {{ 3 | float }} {{ ' 2.50 ' | float }} {{ '-1e3' | float }}
{{ -5 | abs }} {{ -5.5 | abs }} {{ (0 - 5) | abs }} {{ 5 | abs }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 42 | round }} {{ 2.1 | round(method='ceil') }} {{ 2.9 | round(0, 'floor') }} {{ 1234.5 | round(-2) }} {{ 3.14159 | round(3) }} {{ 42.55 | round(1, 'floor') }}
{{ 5 | round(-2) }} {{ 44 | round(-888) }} {{ 50 | round(-2) }} {{ 150 | round(-2) }} {{ -151 | round(-2) }} {{ 12345 | round(-3) }} {{ 5.0 | round(-400) }}
{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent(2, blank=true) }}|{{ lines | indent('> ') }}|{{ '' | indent }}|{{ 'a\n' | indent }}
{{ html | e }} {{ html | escape }} {{ html | safe }} {{ html | forceescape }}
{{ xs | reverse | list }} {{ 'abc' | reverse }} {{ xs | sum }} {{ users | sum(attribute='age') }} {{ xs | sum(start=10) }} {{ [1.5, 2] | sum }} {{ xs | min }} {{ xs | max }} {{ words | min }} {{ words | max }} {{ users | max(attribute='age') | string | length }} {{ none_list | min }}
{{ xs | batch(2) | list }} {{ xs | batch(2, 0) | list }} {{ [1,2,3,4] | batch(2) | list }}
{{ '%s is %d and %.2f%%' | format('x', 5, 1.5) }} {{ '%s' % 'a' }} {{ '%s-%s' % (1, 2) }} {{ '%05d|%-5d|%x' % (42, 42, 255) }} {{ '%r' % ['a'] }}
{{ 'one two  three' | wordcount }} {{ 5 | string | length }} {{ [1, 'a'] | string }}
{{ sp.strip() }}|{{ sp.lstrip() }}|{{ sp.rstrip() }}|{{ 'xxhixx'.strip('x') }}|{{ 'xyhiyx'.lstrip('xy') }}|{{ 'hi!?'.rstrip('?!') }}|{{ '\n\na'.lstrip('\n') }}
{{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c'.split(none, 1) }} {{ 'a</think>b'.split('</think>')[-1] }} {{ 'abc'.split('x') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b c'.rsplit() }} {{ 'a,b'.rsplit(',', 5) }}
{{ lines.splitlines() }} {{ 'a\r\nb\x0bc\u2028d'.splitlines() }} {{ ''.splitlines() }}
{{ s.startswith('Hell') }} {{ s.endswith('d') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith(('x', 'y')) }} {{ s.upper() }} {{ s.lower() }} {{ "they're bill's" | title }} {{ "they're bill's".title() }} {{ 'aBC'.capitalize() }}
{{ s.replace('o', '0') }} {{ s.replace('o', '0', 1) }} {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('q') }} {{ u.find('日') }} {{ s.count('l') }} {{ 'ab'.count('') }} {{ ', '.join(['a', 'b']) }} {{ 'x'.join('abc') }} {{ 'pre-x'.removeprefix('pre-') }} {{ 'x.py'.removesuffix('.py') }}
{{ '12'.isdigit() }} {{ 'a1'.isdigit() }} {{ ''.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' \t'.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ 'Ab'.islower() }} {{ '1'.isupper() }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '*') }}
{{ xs.index(1) }} {{ xs.count(3) }} {{ d.copy() == d }}
{{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ d.nope is defined }} {{ d.a is defined }} {{ nothing is none }} {{ nothing is not none }} {{ missing is none }} {{ n is not defined }}
{{ s is string }} {{ n is string }} {{ d is mapping }} {{ xs is mapping }} {{ xs is iterable }} {{ n is iterable }} {{ s is iterable }} {{ missing is iterable }} {{ xs is sequence }} {{ d is sequence }} {{ s is sequence }} {{ n is sequence }} {{ missing is sequence }} {{ (1,) is sequence }}
{{ n is number }} {{ f is number }} {{ t is number }} {{ s is number }} {{ n is integer }} {{ t is integer }} {{ f is integer }} {{ f is float }} {{ n is float }} {{ t is boolean }} {{ n is boolean }} {{ t is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ none is false }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 3 }} {{ n is divisibleby(2) }} {{ n is eq 3 }} {{ n is equalto(3) }} {{ n is ne 3 }} {{ n is lt 4 }} {{ n is le 3 }} {{ n is gt 3 }} {{ n is ge 3 }} {{ n is lessthan 4 }} {{ n is greaterthan 1 }} {{ 1 is in xs }} {{ 9 is not in xs }} {{ 'l' is in s }} {{ n is sameas n }} {{ none is sameas none }} {{ 'A' is upper }} {{ 'a' is lower }} {{ 'Aa' is lower }} {{ range is callable }} {{ n is callable }} {{ s is escaped }}
{{ 1 + n is defined }} {{ not n is defined }} {{ n is defined and t }} {{ 'x' if n is defined else 'y' }} {{ n is number and s is string }} {{ -n | abs }} {{ n | string ~ 'a' | upper }}
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3)[1] }} {{ range(4) | length }} {{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('') }}
{{ "it's" | list | string | length }} {{ ["it's", 'say "hi"', 'both \' and "', 'é\n\t\x00\u200b'] }} {{ {'k': "it's"} }}
{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'text' %}{{ p['text'] }}{% else %}<img>{% endif %}{% endfor %}{% endif %}{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}
{%- for m in messages -%}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('bad') }}{%- endif -%}{{ m.role }}{%- endfor -%}
{{ messages | tojson }}{{ messages[1:] | length }}{{ messages[0] is mapping and 'role' in messages[0] }}
{% set loop_messages = messages[1:] if messages[0].role == 'user' else messages %}{{ loop_messages | length }}{% set s2 = messages[0]['content'] | trim + '!' %}{{ s2 }}
{{ [1, 2, 3] | map('multiply') | list if false else 'skipped' }}
{{ 'x' | int(base=99) }}
{{ 'a' in ['a'] and 'b' not in ['a'] }} {{ ('a' ~ 'b') | upper }} {{ (xs | sort)[0] }} {{ xs | sort | first }} {{ d.items() | list | first | last }}
{{ 9007199254740993 }} {{ 9223372036854775807 }} {{ 10 ** 15 }} {{ big * 1000 }} {{ 7 // 2.0 }} {{ 1 == 1 == true }} {{ true + true }} {{ -true }} {{ 5 // -2 }} {{ -5 % 3 }}
x{%- if true %} a {%- else %} b {% endif -%} y
{% if true %}

two newlines
{% endif %}

end
{{ n
 }}{% set
 zz = 5
%}{{ zz }}
{% for x in xs -%}
  {{ x }}
{%- endfor %}
{{ '' ~ none_list }}X
{{ xs | map('string') | list | length }} {% if xs | select('gt', 9) %}a generator is true{% endif %} {{ xs | select('gt', 9) | list }}
{% set g = xs | map('string') %}{% for x in g %}{{ x }}{% endfor %}|{% for x in g %}{{ x }}{% endfor %}|{{ g | join }}
{{ (xs | map('string')) is sequence }} {{ (xs | map('string')) is iterable }} {{ d.keys() is sequence }} {{ d.items() is iterable }} {{ range(2) is sequence }} {{ missing is sequence }}
{{ none | map('upper') | list }} {{ 0 | select | list }} {{ none | selectattr('a') | list }} {{ missing | rejectattr('a') | list }}
{{ d.keys() }} {{ d.values() }} {{ d.items() }} {{ {}.keys() }} {{ d.keys() | length }} {{ 'a' in d.keys() }} {{ 2 in d.values() }} {{ ('a', 2) in d.items() }} {{ d.keys()[0] is defined }} {{ d.keys() | first }} {{ d.items() | last }} {{ 'x' if {}.items() else 'none' }}
{{ [d.keys()] }} {{ range(5)[1:3] | list }} {{ range(3) == [0, 1, 2] }} {{ range(3) | join(',') }} {{ range(3).count(1) }} {{ range(3).index(2) }} {{ range(0) | length }}
{{ xs | reverse | first }} {{ words | unique | map('upper') | join }} {{ d | items | map('first') | join(',') }}
{{ '<b>' | e }} {{ ('<b>' | e) + '<i>' }} {{ '<i>' + ('<b>' | safe) }} {{ ('<b>' | safe) ~ '<i>' }} {{ '<b>' | e | e }} {{ '<b>' | safe | forceescape }} {{ ('<b>' | safe) is escaped }} {{ ('<b>' | safe).strip('<') + '<' }} {{ ('a<' | safe)[1:] + '<' }} {{ ('<A>' | safe | lower) + '<' }} {{ (nested | tojson | safe) + '<' }} {{ (('<b>' | safe) + '<') | length }} {{ ('<a>' | safe | trim) + '<' }} {{ ('<a>' | safe | replace('a', 'b')) + '<' }} {{ '<b>' | safe == '<b>' }}
{{ '{}-{}'.format(1, 'b') }} {{ '{1}{0}{1}'.format('a', 'b') }} {{ '{x}{y}'.format(x=1, y=none) }} {{ '{{}}{}'.format('z') }} {{ '{:>5}|{:<5}|{:^5}|{:*^5}'.format('a', 'b', 'c', 'd') }} {{ '{:05d}|{:+d}|{: d}|{:,}|{:x}|{:X}|{:b}|{:o}'.format(42, 42, 42, 1234567, 255, 255, 5, 8) }} {{ '{:.2f}|{:8.3f}|{:e}|{:g}|{:.1%}|{:f}'.format(1.5, 2.25, 12345.678, 0.0001, 0.256, 3) }} {{ '{0[a]}{1[0]}{0[key]}'.format(d, xs) }} {{ '{}{}{}'.format(true, [1], 1.0) }} {{ '{!r}|{!s:>4}'.format('q', 'w') }} {{ '{:.2}'.format('é日本') }} {{ '{:5}|{:5}|{:<5}|'.format(1, 'a', 1.5) }} {{ '{:05}|{:08.2f}'.format(-3, -3.14159) }} {{ ''.format() }} {{ '{a[b]}'.format(a=d) }} {{ '[{0[9]}{1[q]}{1.q}]'.format(xs, d) }}
{{ '<｜x{}｜>'.format(':y') }} {{ '%s: %s' | format('a', 1) }} {{ ('%s' * 2) % ('a', 'b') }}
{% for u in users recursive %}{{ u.name }}{% if u.tags %}({{ loop(u.tags) }}){% endif %}{% endfor %}
{% for x in [[1, [2, 3]], [4]] recursive %}{% if x is sequence %}<{{ loop.depth }}{{ loop.depth0 }}:{{ loop(x) }}>{% else %}{{ x }}{% endif %}{% endfor %}
{% for x in [1, [2, 9], 3] if x != 9 recursive %}{{ loop(x) if x is iterable else x }}{% else %}none{% endfor %}
{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}{% for x in [1, 2] %}{{ loop.changed(x, 'k') }}{{ loop.changed(x, 'k') }}{% endfor %}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }} {{ '7'.zfill(3) }} {{ '-7'.zfill(3) }} {{ 'aBc'.swapcase() }} {{ 'abc'.index('c') }} {{ 'abca'.rindex('a') }} {{ '12'.isdecimal() }}
{{ 'upper' is filter }} {{ 'nofilter' is filter }} {{ 'string' is test }} {{ 'notest' is test }}
{% if z %}{{ s | nofilter }}{% endif %}{{ s | nofilter if z else 'lenient' }}{% if t %}ok{% else %}{{ s is notest }}{% endif %}{% if z %}{% elif z is notest and z %}{% endif %}
{{ s | nofilter('a', b=1) if false }}{{ 'x' if true else s | nofilter }}
"""

ERRORS = r"""
{{ missing.x }}
{{ missing.x.y }}
{{ missing['x'] }}
{{ missing() }}
{{ missing + 1 }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ {} < {} }}
{{ xs.append(1) }}
{{ d.update({}) }}
{{ d.pop('a') }}
{{ s.nope() }}
{{ n() }}
{{ n | length }}
{{ none | length }}
{{ none | list }}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{{ raise_exception('boom') }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ xs[::0] }}
{{ range(1000000) | list }}
{{ range(1, 2, 0) }}
{{ s.split('') }}
{{ missing | tojson }}
{{ range | tojson }}
{{ 'a' | nofilter }}
{{ 'a' is notest }}
{{ 'a' | map | list }}
{{ [1] | map('nofilter') | list }}
{{ [1] | select('notest') | list }}
{{ 'a' | round }}
{{ 1 | round(1, 'x') }}
{{ xs | batch(2, 3, 4) | list }}
{% set ns.x = 1 %}
{% set d.x = 1 %}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ caller() }}{% endmacro %}{{ m(1) }}
{% if %}{% endif %}
{% if t %}
{% endif %}
{% for x in xs %}
{% for x xs %}{% endfor %}
{% for 1 in xs %}{% endfor %}
{% else %}
{% nosuchtag %}
{% break %}
{{ }}
{{ 1 + }}
{{ (1 }}
{{ [1 }}
{{ {1 }}
{{ 1 }
{{ 'abc }}
{{ a b }}
{{ a.  }}
{{ a[ }}
{{ f(a=1, 2) }}
{{ f(,) }}
{{ !x }}
{{ $ }}
{# open
{% raw %} open
{% set = 1 %}
{% set true = 1 %}
{% set x %}
{% include 'x' %}
{% import 'x' as y %}
{% extends 'x' %}
{% call 5 %}{% endcall %}
{% filter %}{% endfilter %}
{{ ''.join([1]) }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '%s' % (1, 2) }}
{{ [1, 'a'] | sort }}
{{ [{'a': 1}, {'a': 'x'}] | sort(attribute='a') }}
{{ [[1]] | sum }}
{{ {[1]: 2} }}
{{ s.index('zzz') }}
{{ xs.index(77) }}
{{ -'a' }}
{{ not }}
{{ 1 if }}
{{ x is }}
{{ x | }}
{% macro 1() %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{{ 'a' is divisibleby 2 }}
{{ strftime_now() }}
{{ xs | map('string') | tojson }}
{{ xs | map('string') | length }}
{{ xs | select | last }}
{{ d.keys() | tojson }}
{{ d.items() | tojson }}
{{ range(3) | tojson }}
{{ d.values() + [1] }}
{{ range(2) * 2 }}
{{ s.startswith(['H']) }}
{% for x in xs %}{{ loop(xs) }}{% endfor %}
{% for x in xs recursive %}{{ loop() }}{% endfor %}
{% for x in xs recursive %}{{ loop(5) }}{% endfor %}
{% if t %}{{ s | nofilter }}{% endif %}
{% if z %}{% for x in xs %}{{ s | nofilter }}{% endfor %}{% endif %}
{% if z %}{% set x %}{{ s | nofilter }}{% endset %}{% endif %}
{% if z %}{% macro m() %}{{ s is notest }}{% endmacro %}{% endif %}
{{ s | nofilter if t else 'x' }}
{% if s is notest %}{% endif %}
{{ '{}{}'.format(1) }}
{{ '{}{0}'.format(1) }}
{{ '{x}'.format(1) }}
{{ '{'.format(1) }}
{{ '}'.format(1) }}
{{ '{:d}'.format('a') }}
{{ '{:s}'.format(1) }}
{{ '{:.2d}'.format(1) }}
{{ '{:>3}'.format([1]) }}
{{ '{0[q][r]}'.format(d) }}
{{ 'abc'.index('z') }}
{{ 'abc'.partition('') }}
{{ none | list }}
"""

MULTILINE = [
    "a\n  {% if t %}\n    body\n  {% endif %}\ntail\n",
    "a\n  {%- if t -%}\n    body\n  {%- endif -%}\ntail",
    "a   {%+ if t %} x {% endif +%}\nb",
    "  {{ n }}\n  {{- n }}  {{ n -}}\n  z\n\n",
    "\n\n{# c #}\n x {# d -#}\n\n y\n   {# e #}   \nz",
    "  {% raw %}\n {{ a }}\n  {% endraw %}\nx\r\ny\rz",
    "{% for x in xs %}\n  {{ x }}\n  {% if x == 1 %}\n one\n  {% endif %}\n{% endfor %}\n",
    "{%- for x in xs %}\n{{- x }}\n{%- endfor %}\n\nend",
    "\t{% set a = 1 %}\t\n\t{{ a }}\t{% set b = 2 %}\t{{ b }}\n",
    "{% if t %}\n\ntwo newlines\n{% endif %}\n\nend\n\n",
    "{{ n\n }}{% set\n zz = 5\n%}{{ zz }}",
    "{% macro m(a) -%}\n  [{{ a }}]\n{%- endmacro -%}\n\n{{ m(1) }}\n{{ m(2) -}}\n",
    "x {% if t %} {#- c #} y {% endif %} z",
    "{%+ if t %}\n  a\n  {%+ endif %}\nb",
    "{% set x %}\n  text\n{% endset %}\n[{{ x }}]",
    "   {%- set x = 1 -%}   {{ x }}",
    "a{{ '\n' }}  {% if t %}b{% endif %}",
    "{{ s }}  {% if t %}\n b{% endif %}\n",
    "{% filter indent(2) %}\na\nb\n{% endfilter %}",
    "{# a -#}  {#- b #}\n\n{# c +#}\nd",
    "a\u00a0\n\u2003{%- if t -%}\u00a0x\u00a0{%- endif %}",
]


def rows():
    sources = [line for line in CASES.split("\n") if line.strip()] + MULTILINE
    # Each expression also by itself, so that one failure does not hide another.
    for line in list(sources):
        parts = [p for p in line.split("{{ ") if p]
        if line.startswith("{{ ") and "{%" not in line and len(parts) > 2:
            for part in parts:
                expression = part[: part.find("}}")] if "}}" in part else ""
                if expression.strip():
                    sources.append("{{ " + expression + "}}")
    for source in sources:
        try:
            yield {"template": source, "variables": VARS, "rendered": ENV.from_string(source).render(**VARS)}
        except Exception:
            yield {"template": source, "variables": VARS, "error": True}
    for source in [line for line in ERRORS.split("\n") if line]:
        try:
            ENV.from_string(source).render(**VARS)
        except Exception:
            yield {"template": source, "variables": VARS, "error": True}
        else:
            raise SystemExit(f"jinja2 accepts {source}")


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "template_cases.jsonl")
    seen = set()
    count = 0
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        out.write(json.dumps({"variables": VARS}, ensure_ascii=False) + "\n")
        for row in rows():
            if row["template"] in seen:
                continue
            seen.add(row["template"])
            count += 1
            row.pop("variables")
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(count, "cases")


if __name__ == "__main__":
    main()
