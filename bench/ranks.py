#!/usr/bin/env python3
"""ranks.py TABLE SVG: draws what bench_ranks prints: tokens/s of an answer over ranks, lines by the planner's model, dots by the simulation.

    build/bench/bench_ranks >ranks.tsv && bench/ranks.py ranks.tsv docs/pictures/ranks.svg
"""
import csv
import math
import sys

COLOURS = ["#2e86ab", "#e08e1b", "#3a9d5d", "#d1495b"]
STYLE = """<style>
svg { color: #1b1f24; background: #ffffff }
@media (prefers-color-scheme: dark) { svg { color: #e4e7eb; background: #14171a } }
@media print { svg { color: #000000; background: #ffffff } }
text { fill: currentColor } .title { font-size: 16px; font-weight: 600 }
.faint { fill: none; stroke: currentColor; stroke-opacity: 0.18 }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
</style>"""
WIDTH, HEIGHT, LEFT, TOP = 360, 240, 50, 60


def panel(rows, left):
    """One model: a line for layers (which hardly depend on the network) and one for each network's experts."""
    lines = {"layers": [(int(r["ranks"]), float(r["layers tokens/s"])) for r in rows if r["network"].startswith("10 ")]}
    dots = {}
    for r in rows:
        name = "experts, " + r["network"]
        lines.setdefault(name, []).append((int(r["ranks"]), float(r["experts tokens/s"])))
        dots.setdefault(name, []).append((int(r["ranks"]), float(r["experts simulated"])))
    top = 1.1 * max(y for line in lines.values() for _, y in line)

    def at(point):
        return f"{left + WIDTH * math.log2(point[0]) / 6:.1f},{TOP + HEIGHT * (1 - point[1] / top):.1f}"

    out = [f'<text x="{left}" y="{TOP - 12}" font-weight="bold">{rows[0]["model"]}</text>']
    for i in range(7):
        x = left + WIDTH * i / 6
        out.append(f'<path class="faint" d="M{x:.1f},{TOP}v{HEIGHT}"/><text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{1 << i}</text>')
    for i in range(5):
        y = TOP + HEIGHT * (1 - i / 4)
        out.append(f'<path class="faint" d="M{left},{y:.1f}h{WIDTH}"/><text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{top * i / 4:.3g}</text>')
    for colour, (name, points) in zip(COLOURS, lines.items()):
        points = [p for p in points if p[1] > 0]
        out.append(f'<path class="line" stroke="{colour}" d="M{" L".join(at(p) for p in points)}"/>')
        for p in dots.get(name, []):
            x, y = at(p).split(",")
            out.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>')
    return out, list(lines)


def main():
    with open(sys.argv[1], newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    models = list(dict.fromkeys(r["model"] for r in rows))
    total = LEFT + len(models) * (WIDTH + 70)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {TOP + HEIGHT + 80}" font-family="system-ui, sans-serif" font-size="13">', STYLE,
           f'<text x="{LEFT}" y="20" class="title">Tokens/s of one answer over ranks: lines by the model, dots simulated</text>']
    names = []
    for i, model in enumerate(models):
        drawn, names = panel([r for r in rows if r["model"] == model], LEFT + i * (WIDTH + 70))
        out += drawn
    for i, name in enumerate(names):
        x = LEFT + i * 212
        out.append(f'<path class="line" stroke="{COLOURS[i]}" d="M{x},{TOP + HEIGHT + 50}h20"/><text x="{x + 26}" y="{TOP + HEIGHT + 54}">{name}</text>')
    out.append("</svg>\n")
    with open(sys.argv[2], "w") as svg:
        svg.write("\n".join(out))


main()
