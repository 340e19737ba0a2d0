#!/usr/bin/env python3
"""diagrams.py: writes docs/modules.svg and docs/token.svg, the two diagrams of docs/architecture.md.

What each module may include is read from tools/modules.sh, which enforces it. Colours are presentation attributes for
light pages; a style sheet replaces them on dark ones."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIGHT = {"ink": "#1b1f24", "page": "#ffffff", "box": "#eef2f6", "line": "#6b7683",
         "gpu": "#dcefe0", "cpu": "#dde8fa", "disk": "#f6e9d2", "note": "#5a6470"}
DARK = {"ink": "#e4e7eb", "page": "#14171a", "box": "#232a31", "line": "#8b97a5",
        "gpu": "#1d3a26", "cpu": "#1c2f4d", "disk": "#453618", "note": "#a5afba"}


class Drawing:
    def __init__(self, width, height, title):
        dark = "".join(f".{k} {{ fill: {v} }} .s-{k} {{ stroke: {v} }} " for k, v in DARK.items())
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="system-ui, sans-serif" font-size="13" role="img">',
            f"<title>{title}</title>",
            f"<style>@media (prefers-color-scheme: dark) {{ {dark}}}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" class="line" fill="{LIGHT["line"]}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" class="page" fill="{LIGHT["page"]}"/>',
        ]

    def text(self, x, y, words, size=13, kind="ink", anchor="middle", bold=False):
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}"{weight} class="{kind}" '
                          f'fill="{LIGHT[kind]}">{words}</text>')

    def box(self, x, y, width, height, kind="box", dashed=False):
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind} s-line" '
                          f'fill="{LIGHT[kind]}" stroke="{LIGHT["line"]}"{dash}/>')

    def arrow(self, *points):
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        self.parts.append(f'<path d="{path}" class="s-line" fill="none" stroke="{LIGHT["line"]}" stroke-width="1.5" '
                          'marker-end="url(#tip)"/>')

    def write(self, path):
        path.write_text("\n".join(self.parts) + "\n</svg>\n")


def includes():
    """Module: the modules it may include, as modules.sh has them."""
    script = (ROOT / "tools/modules.sh").read_text()
    return {module: [one for one in may.split() if "/" not in one] for module, may in re.findall(r'may\["(\w+)"\] = "([^"]*)"', script)}


def modules():
    may = includes()
    d = Drawing(960, 826, "The modules of src/ and what each may include")
    purpose = {
        "base": "status, log, arena, thread pool, files, machine",
        "net": "messages",
        "numeric": "formats, the definition of every operation, fast versions",
        "gguf": "the container: reading, writing, fingerprints",
        "template": "Jinja",
        "picture": "image files",
        "vision": "encoders of pictures",
        "text": "tokenizers, chat, streams",
        "grammar": "what answers may be",
        "dialogue": "answers taken apart",
        "synth": "models that are made",
        "model": "families, parts, loading",
        "device": "ops; host, sim, cuda",
        "disk": "reading files",
        "experts": "where they are, who computes them",
        "store": "layers from disk",
        "kv": "KV cache",
        "sampling": "logits to token",
        "open": "opening a model: requirements, resources, plan",
        "plan": "requirements, limits, rates, placement; decides",
        "profile": "tally, profile, trace, replay",
        "hotcache": "which experts are cached",
        "engine": "sessions, step, CPU layers",
        "gpu": "a model on a device: memory, link, core, lanes ...",
        "cluster": "several ranks",
        "api": "the public functions",
        "generation": "one answer at a time",
        "speculate": "which tokens to guess",
        "server": "HTTP, dialects, scheduler, prefix cache",
        "hub": "models by name: store, fetching",
        "cli": "one file per command",
    }
    place = {  # x, y, width
        "cli": (20, 16, 220), "server": (280, 16, 300), "hub": (620, 16, 220), "generation": (20, 138, 180), "speculate": (20, 208, 175), "api": (230, 138, 170), "open": (420, 138, 520), "gpu": (420, 208, 430), "cluster": (866, 208, 86), "hotcache": (410, 278, 220),
        "engine": (650, 278, 220), "profile": (420, 348, 440), "plan": (420, 418, 440), "disk": (410, 488, 90), "experts": (510, 488, 250), "store": (770, 488, 130), "kv": (215, 348, 90), "sampling": (215, 418, 130),
        "dialogue": (20, 418, 175), "grammar": (20, 488, 175),
        "text": (20, 558, 175), "synth": (215, 558, 175), "model": (410, 558, 220), "device": (650, 558, 220),
        "gguf": (20, 628, 610), "numeric": (20, 698, 650), "picture": (680, 698, 94), "vision": (215, 278, 175), "net": (782, 698, 102), "template": (888, 698, 64), "base": (20, 758, 920),
    }
    assert set(place) == set(may) == set(purpose), "a module is missing here or in modules.sh"
    for module, (x, y, width) in place.items():
        height = 36 if module in ("numeric", "picture", "template", "net", "base") else 46
        d.box(x, y, width, height)
        d.text(x + width / 2, y + (15 if height == 36 else 19), module + "/", 14, bold=True)
        d.text(x + width / 2, y + (30 if height == 36 else 36), purpose[module], 11, "note")
    d.box(860, 16, 80, 46, dashed=True)
    d.text(900, 35, "web/", 13, "note", bold=True)
    d.text(900, 52, "the page", 11, "note")
    d.box(20, 88, 920, 26)
    d.text(480, 106, "include/moraine.h, moraine_tools.h: the common vocabulary; what stands above sees nothing else", 12)
    for x in (130, 430, 730):
        d.arrow((x, 62), (x, 86))
    d.arrow((480, 114), (480, 136))
    # An arrow from each module to those it may include and reaches through no other.
    below = {r: set(may[r]) for r in may}
    for module, direct in below.items():
        far = {b for a in direct for b in may[a]}
        for other in direct - far:
            (x, y, w), (ox, oy, ow) = place[module], place[other]
            height = 36 if module in ("numeric", "picture", "template", "net", "base") else 46
            if y == oy:  # side by side
                d.arrow((x + w, y + height / 2), (ox - 1, y + height / 2))
                continue
            middle = max(x, ox) / 2 + min(x + w, ox + ow) / 2
            d.arrow((middle, y + height), (middle, oy - 1))
    d.text(20, 815, "An arrow: may include. A module may also include most modules below those; the table in architecture.md has the whole list.",
           11, "note", "start")
    d.write(ROOT / "docs/modules.svg")


def token():
    d = Drawing(1000, 520, "One layer of one token: tiers from top to bottom, time from left to right")
    for y, height, kind, name, holds in (
            (14, 176, "gpu", "VRAM", "the GPU computes"), (214, 176, "cpu", "RAM", "the CPU computes"),
            (414, 92, "disk", "disk", "the model's file")):
        d.box(10, y, 980, height, kind)
        d.text(24, y + 22, name, 15, anchor="start", bold=True)
        d.text(24, y + 40, holds, 11, "note", "start")

    def step(x, y, width, name, *notes):
        d.box(x, y, width, 40 + 14 * (len(notes) - 1), "page")
        d.text(x + width / 2, y + 17, name, 13, bold=True)
        for i, note in enumerate(notes):
            d.text(x + width / 2, y + 33 + 14 * i, note, 11, "note")

    step(150, 30, 150, "core of the layer", "mixer, router's choice", "reads the map of slots")
    step(350, 30, 190, "hits", "experts in slots, by worklist", "and the shared expert")
    step(620, 122, 190, "copied experts", "in slots, or in stages", "that are reused")
    step(850, 30, 130, "merge", "in router order,", "then the next layer")
    step(150, 250, 150, "serve", "sort the choice:", "hit, RAM or disk?")
    step(350, 306, 420, "CPU lane", "computes the other missing experts in rounds, as they are there",
         "one thread makes the driver's calls meanwhile")
    step(350, 232, 190, "link lane", "as many as let both end", "together, by measured rates")
    step(150, 440, 150, "read", "by urgency, into slots", "in RAM")
    step(350, 440, 190, "read ahead", "streamed layers; on the CPU", "the next layer's experts too")
    d.arrow((300, 55), (348, 55))
    d.arrow((540, 55), (848, 55))
    d.arrow((225, 84), (225, 248))
    d.text(232, 205, "ids and input", 11, "note", "start")
    d.arrow((300, 262), (348, 262))
    d.arrow((300, 290), (325, 290), (325, 332), (348, 332))
    d.arrow((540, 250), (700, 250), (700, 178))
    d.text(708, 205, "copies over the link", 11, "note", "start")
    d.arrow((810, 150), (900, 150), (900, 86))
    d.arrow((770, 332), (930, 332), (930, 86))
    d.text(938, 205, "reply", 11, "note", "start")
    d.arrow((200, 304), (200, 438))
    d.text(193, 405, "missing", 11, "note", "end")
    d.arrow((300, 460), (325, 460), (325, 400), (400, 400), (400, 362))
    d.text(408, 405, "join the next round as they land", 11, "note", "start")
    d.text(640, 466, "Without a GPU the core, hits and merge are the CPU's too,", 11, "note", "start")
    d.text(640, 482, "and there is no link lane. A layer that does not fit comes", 11, "note", "start")
    d.text(640, 498, "through a layer buffer while the one before computes.", 11, "note", "start")
    d.write(ROOT / "docs/token.svg")


if __name__ == "__main__":
    modules()
    token()
