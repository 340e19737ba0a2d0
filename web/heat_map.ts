// A profile as a heat map, or the difference of two.

import { h } from "./dom";
import { Grid, mix, rgb } from "./grid";
import { type Profile, shareOf } from "./profile_data";
import { onThemeChange } from "./theme";
import { count, share } from "./units";

export class HeatMap {
    readonly element: HTMLElement;
    private readonly words = h("p", { class: "quiet heat-words", role: "status" });
    private readonly grid: Grid;
    private profile: Profile | null = null;
    private other: Profile | null = null;

    constructor(private readonly label: string) {
        this.grid = new Grid(label, (cell) => this.tell(cell?.row, cell?.column));
        this.element = h("div", { class: "map" }, this.grid.element, this.words);
        onThemeChange(() => this.draw());
    }

    /** With another: what this one chose more often is in the accent's colour, what the other did in that of crossings. */
    show(profile: Profile, other: Profile | null = null): void {
        this.profile = profile;
        this.other = other;
        this.draw();
        this.tell(undefined, undefined);
    }

    private draw(): void {
        const p = this.profile;
        if (!p) {
            return;
        }
        const out = this.grid.shape(p.layers.map((l) => String(l.layer)), p.experts);
        const paper = rgb("--sunken"), more = rgb("--ram"), less = rgb("--crossing");
        const values = p.layers.flatMap((l) => {
            const twin = this.other?.layers.find((x) => x.layer === l.layer);
            return Array.from({ length: p.experts }, (_, e) => shareOf(l, e) - (this.other ? shareOf(twin, e) : 0));
        });
        const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
        values.forEach((v, i) => mix(out, 4 * i, paper, v >= 0 ? more : less, Math.sqrt(Math.abs(v) / most)));
        this.grid.draw();
    }

    private tell(row: number | undefined, expert: number | undefined): void {
        const p = this.profile;
        if (!p || row === undefined || expert === undefined) {
            this.words.textContent = `${this.label}. Point, or walk with the arrow keys, to read one.`;
            return;
        }
        const l = p.layers[row];
        const twin = this.other?.layers.find((x) => x.layer === l.layer);
        const versus = this.other ? `, against ${share(shareOf(twin, expert))} in ${this.other.name}` : "";
        this.words.textContent = `Layer ${l.layer}, expert ${expert}: ${count(l.counts[expert])} choices, ${share(shareOf(l, expert))} of the layer's${versus}`;
    }
}
