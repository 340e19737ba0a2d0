#!/usr/bin/env python3
"""test_templates.py BUILD: a sweep of template features against @huggingface/jinja, which browsers and servers of JavaScript use.

It comes from npm (jinja/package.json pins it) into BUILD/jinja. Where npm or its registry cannot be reached the test is skipped,
and says so. Speaks TAP. Where one of the two fails there is nothing to compare (what each refuses differs); every group says how
many were compared, and fails when these are fewer than they were. Where the other prints something else than Python's jinja2,
jinja/differences.json has what jinja2 prints, and that is what counts.
"""
import itertools
import json
import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(here, "support"))
import npm_packages
build = os.path.abspath(sys.argv[1])

CONTEXT = {
    "t": "  Some words, twice: words  ", "e": "", "u": "Größe 日本 é", "n": 7, "z": 0, "f": 2.5, "nil": None, "yes": True, "no": False,
    "l": [3, 1, 2], "s": ["b", "A", "c"], "empty": [], "d": {"b": 1, "a": {"x": [1, 2]}},
    "m": [{"role": "system", "content": "S"}, {"role": "user", "content": " U "}, {"role": "assistant", "content": "A", "n": 3}],
}
VALUES = ["t", "e", "u", "n", "z", "f", "yes", "no", "l", "s", "empty", "d", "m", "m[1].content", "d.a.x", "d['b']", "missing"]


def filters():
    """Every filter on every value, shown as JSON."""
    names = ["upper", "lower", "title", "capitalize", "trim", "length", "count", "first", "last", "list", "string", "int", "float",
             "abs", "sort", "unique | list", "reverse | list", "join", "join(', ')", "tojson", "tojson(indent=2)", "default('x')",
             "default('x', true)", "items | list", "dictsort", "map(attribute='role') | list", "map('upper') | list", "map('length') | list",
             "selectattr('role', 'equalto', 'user') | list", "rejectattr('role', 'equalto', 'user') | list", "selectattr('n') | list",
             "select('string') | list", "reject('string') | list", "replace('o', '0')", "indent(2)", "indent(3, true)", "safe", "sum", "max", "min"]
    for value, name in itertools.product(VALUES, names):
        yield "{{ %s | %s | tojson }}" % (value, name)


def tests():
    names = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "true", "false", "odd", "even",
             "equalto(7)", "eq(7)", "ne(7)", "lower", "upper", "in([7, 'x'])", "callable"]
    for value, name, word in itertools.product(VALUES, names, ["is", "is not"]):
        yield "{%% if %s %s %s %%}yes{%% else %%}no{%% endif %%}" % (value, word, name)


def methods():
    calls = ["strip()", "lstrip()", "rstrip()", "strip(' S')", "upper()", "lower()", "title()", "capitalize()", "split()", "split(',')", "split('w', 1)", "split(' ')",
             "startswith('  S')", "endswith('s')", "startswith(('a', ' '))", "replace('words', 'x')", "replace('w', '', 1)", "items() | list", "keys() | list",
             "values() | list", "get('b')", "get('q', 5)", "get('q')"]
    for value, call in itertools.product(VALUES, calls):
        yield "{{ (%s).%s | tojson }}" % (value, call)


def operators():
    for a, op, b in itertools.product(["n", "z", "f", "2", "0.5", "'a'", "t", "e", "l", "[4]", "yes", "none", "missing"],
                                      ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "~"],
                                      ["n", "2", "f", "'a'", "t", "l", "[4]", "no", "none", "missing"]):
        shown = "{{ %s %s %s }}" if op == "~" else "{{ (%s %s %s) | tojson }}"
        yield shown % (a, op, b)


def slices():
    bounds = ["", "0", "1", "2", "-1", "-2", "9", "-9"]
    for value, a, b, c in itertools.product(["t", "u", "l", "s", "empty"], bounds, bounds, ["", ":2", ":-1", ":-2"]):
        yield "{{ %s[%s:%s%s] | tojson }}" % (value, a, b, c)


def white_space():
    """Signs and line ends around tags."""
    for o, c, o2, c2, tag, gap in itertools.product(["{%", "{%-"], ["%}", "-%}"], ["{%", "{%-"], ["%}", "-%}"],
                                                    ["if yes|endif", "for i in [1, 2]|endfor", "set x = 1|set y = 2"], ["", " ", "\n", "\n  ", "  \n  \n"]):
        first, second = tag.split("|")
        yield "a%s%s %s %s%sb {{ n }}%s%s %s %s%sc" % (gap, o, first, c, gap, gap, o2, second, c2, gap)
    for o, c, gap in itertools.product(["{{", "{{-"], ["}}", "-}}"], ["", " ", "\n", " \n "]):
        yield "a%s%s n %s%sb" % (gap, o, c, gap)
    for o, c, gap in itertools.product(["{#", "{#-"], ["#}", "-#}"], ["", " ", "\n", " \n "]):
        yield "a%s%s n %s%sb" % (gap, o, c, gap)


def loops():
    for name, over in itertools.product(["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem"], ["l", "m", "empty", "d"]):
        yield "{%% for x in %s %%}{{ loop.%s | tojson if loop.%s is defined else '-' }};{%% else %%}none{%% endfor %%}" % (over, name, name)
    for over, condition, body in itertools.product(["l", "s", "m", "d.items()", "range(4)"], ["", " if x != 1", " if x"], ["", "{% if loop.index == 2 %}{% break %}{% endif %}", "{% if loop.first %}{% continue %}{% endif %}"]):
        yield "{%% set ns = namespace(c=0) %%}{%% for x in %s%s %%}%s{%% set ns.c = ns.c + 1 %%}{%% set y = x %%}{{ x | tojson }},{%% endfor %%}{{ ns.c }}{{ y is defined }}" % (over, condition, body)


def macros():
    for defaults, call in itertools.product(["a, b", "a, b=2", "a=1, b='x'", "a, b=none"], ["1", "1, 2", "a=3", "b=4, a=5", "1, b=6", ""]):
        yield "{%% macro f(%s) %%}<{{ a }}|{{ b if b is not none else 'nil' }}>{%% endmacro %%}{{ f(%s) }}" % (defaults, call)
    yield "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}"
    yield "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}x{% endcall %}"
    yield "{% filter upper %}ab {{ t }}{% endfilter %}"
    yield "{% set x %}a{{ n }}{% endset %}{{ x }}{{ x | length }}"
    yield "{% generation %}x{{ n }}{% endgeneration %}"


LEAST = {"filters": 218, "tests": 488, "methods": 74, "operators": 819, "slices": 1280, "white_space": 272, "loops": 81, "macros": 29}
GROUPS = [filters, tests, methods, operators, slices, white_space, loops, macros]


def render(command, folder, templates):
    lines = "".join(json.dumps({"template": t, "context": CONTEXT}) + "\n" for t in templates)
    done = subprocess.run(command, cwd=folder, input=lines, capture_output=True, text=True, timeout=300)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(templates), done.stderr
    return answers


def main():
    reason = npm_packages.install(here, build, "jinja")
    if reason:
        print("1..1\nok 1 - templates # SKIP %s" % reason)
        return 0
    known = json.load(open(os.path.join(here, "jinja", "differences.json")))
    print("1..%d" % len(GROUPS))
    failed = False
    for number, group in enumerate(GROUPS, 1):
        templates = list(group())
        ours = render([os.path.join(build, "moraine"), "template"], here, templates)
        theirs = render(["node", "render.js"], os.path.join(build, "jinja"), templates)
        both = [(t, a["text"], b["text"]) for t, a, b in zip(templates, ours, theirs) if "text" in a and "text" in b]
        wrong = [(t, a, b) for t, a, b in both if a != known.get(t, b)]
        few = len(both) < LEAST[group.__name__]
        failed = failed or bool(wrong) or few
        print("%s %d - %s: %d of %d templates compared" % ("not ok" if wrong or few else "ok", number, group.__name__, len(both), len(templates)))
        for t, a, b in wrong[:10]:
            print("# %r\n#   ours   %r\n#   theirs %r" % (t, a, b))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
