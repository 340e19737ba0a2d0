// A profile as a heat map, or the difference of two.

import { ramp } from "./colours";
import { h, write } from "./dom";
import { type Cell, Grid } from "./grid";
import { type Profile, shareOf } from "./profile_data";
import { onThemeChange } from "./theme";
import { plural, share } from "./units";

const STEPS = 64; // of a colour

export class HeatMap {
    readonly element: HTMLElement;
    private readonly words = h("p", { class: "quiet heat-words", role: "status" });
    private readonly grid: Grid;
    private at: Cell | null = null; // that is pointed at
    private profile: Profile | null = null;
    private other: Profile | null = null;

    constructor(private readonly label: string) {
        this.grid = new Grid(label, (cell) => {
            this.at = cell;
            this.tell(cell?.row, cell?.column);
        });
        this.element = h("div", { class: "map" }, this.grid.element, this.words);
        onThemeChange(() => this.draw());
    }

    /** With another: experts that this one used more are in one colour, those that the other used more in a second one. */
    show(profile: Profile, other: Profile | null = null): void {
        this.profile = profile;
        this.other = other;
        this.draw();
        this.tell(this.at?.row, this.at?.column);
    }

    private draw(): void {
        const p = this.profile;
        if (!p) {
            return;
        }
        const out = this.grid.shape(p.layers.map((l) => String(l.layer)), p.experts);
        const more = ramp("--sunken", "--ram", STEPS), less = ramp("--sunken", "--loading", STEPS);
        const values = p.layers.flatMap((l) => {
            const twin = this.other?.layers.find((x) => x.layer === l.layer);
            return Array.from({ length: p.experts }, (_, e) => shareOf(l, e) - (this.other ? shareOf(twin, e) : 0));
        });
        const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9);
        values.forEach((v, i) => (out[i] = (v >= 0 ? more : less)[Math.round((STEPS - 1) * Math.sqrt(Math.abs(v) / most))]));
        this.grid.draw();
    }

    private tell(row: number | undefined, expert: number | undefined): void {
        const p = this.profile;
        if (!p || row === undefined || expert === undefined) {
            write(this.words, `${this.label}. Point at a cell or tap it, or use the arrow keys, for its numbers.`);
            return;
        }
        const l = p.layers[row];
        const twin = this.other?.layers.find((x) => x.layer === l.layer);
        const versus = this.other ? `, compared with ${share(shareOf(twin, expert))} in ${this.other.name}` : "";
        write(this.words, `Layer ${l.layer}, expert ${expert}: ${plural(l.counts[expert], "use")}, ${share(shareOf(l, expert))} of the layer${versus}`);
    }
}
