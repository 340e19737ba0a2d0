// The map of experts: a colour for the tier, brightness for recent use, a flash for what had to cross. It is fed four times a
// second at most and drawn ten times while something fades, so that nothing jumps; when all is quiet nothing is drawn.

import { announce, h } from "./dom";
import { type Cell, Grid, mix, rgb } from "./grid";
import { onThemeChange } from "./theme";

export interface LayerEvent {
    layer: number;
    places: string;
    used: string;
    missed: string;
}

const FRAME_MS = 100;
const USE_FADES = 0.93; // of what is left after a frame: half in a second
const FLASH_FADES = 0.55;
const TIERS = ["--disk", "--ram", "--vram"];

export class ExpertMap {
    readonly element: HTMLElement;
    readonly layers: number[] = [];
    private readonly tip = h("div", { class: "tip", hidden: true });
    private readonly grid: Grid;
    private columns = 0;
    private places = new Uint8Array(0);
    private heat = new Float32Array(0);
    private flash = new Float32Array(0);
    private readonly used: number[] = []; // by layer, fading
    private readonly found: number[] = [];
    private timer = 0;
    private pointed: Cell | null = null;

    constructor(
        label: string,
        private readonly tell: (layer: number, expert: number, tier: string) => Promise<string>,
    ) {
        this.grid = new Grid(label, (cell, x, y) => void this.point(cell, x, y), 28);
        this.element = h("div", { class: "map" }, this.grid.element, this.tip);
        onThemeChange(() => this.draw());
    }

    /** Forgets everything: another model. */
    clear(): void {
        this.layers.length = 0;
        this.columns = 0;
    }

    feed(events: LayerEvent[]): void {
        const columns = Math.max(0, ...events.map((e) => e.places.length));
        if (events.length !== this.layers.length || columns !== this.columns) {
            this.layers.splice(0, this.layers.length, ...events.map((e) => e.layer));
            this.columns = columns;
            const cells = columns * events.length;
            this.places = new Uint8Array(cells).fill(255);
            this.heat = new Float32Array(cells);
            this.flash = new Float32Array(cells);
            this.used.splice(0, this.used.length, ...events.map(() => 0));
            this.found.splice(0, this.found.length, ...events.map(() => 0));
        }
        events.forEach((e, row) => {
            for (let i = 0; i < e.places.length; i++) {
                const at = row * columns + i;
                const used = letter(e.used, i), missed = letter(e.missed, i);
                this.places[at] = e.places.charCodeAt(i) - 48;
                this.heat[at] += used;
                this.flash[at] = missed > 0 ? Math.max(this.flash[at], missed / used) : this.flash[at];
                this.used[row] += used;
                this.found[row] += used - missed;
            }
        });
        if (!this.timer) {
            this.draw();
            this.timer = window.setInterval(() => this.frame(), FRAME_MS);
        }
    }

    stop(): void {
        clearInterval(this.timer);
        this.timer = 0;
    }

    /** So many experts are on disk, in RAM and in VRAM. */
    tiers(): number[] {
        const counts = [0, 0, 0];
        this.places.forEach((place) => counts[place]++);
        return counts.slice(0, 3);
    }

    /** The share of recent choices that was found where it is computed fastest. */
    hitRate(row?: number): number | null {
        const sum = (list: number[]) => (row === undefined ? list.reduce((a, b) => a + b, 0) : list[row]);
        const used = sum(this.used);
        return used > 0.5 ? sum(this.found) / used : null;
    }

    placesOf(row: number): number[] {
        const counts = [0, 0, 0];
        for (let i = 0; i < this.columns; i++) {
            counts[this.places[row * this.columns + i]]++;
        }
        return counts;
    }

    private frame(): void {
        let warm = false;
        for (let i = 0; i < this.heat.length; i++) {
            this.heat[i] *= USE_FADES;
            this.flash[i] *= FLASH_FADES;
            warm = warm || this.heat[i] > 0.02;
        }
        for (let row = 0; row < this.used.length; row++) {
            this.used[row] *= 0.98;
            this.found[row] *= 0.98;
        }
        this.draw();
        if (!warm) {
            this.stop();
        }
    }

    private draw(): void {
        const out = this.grid.shape(this.layers.map(String), this.columns);
        const tiers = TIERS.map(rgb), crossing = rgb("--crossing"), paper = rgb("--paper");
        const most = this.heat.reduce((a, b) => Math.max(a, b), 1);
        for (let i = 0; i < this.places.length; i++) {
            if (this.places[i] > 2) { // layers may have different numbers of experts
                mix(out, 4 * i, paper, paper, 0);
                continue;
            }
            const bright = 0.22 + 0.78 * Math.sqrt(this.heat[i] / most);
            mix(out, 4 * i, paper, tiers[this.places[i]], bright);
            if (this.flash[i] > 0.05) {
                mix(out, 4 * i, [out[4 * i], out[4 * i + 1], out[4 * i + 2]], crossing, 0.7 * this.flash[i] * bright);
            }
        }
        this.grid.draw();
    }

    private async point(cell: Cell | null, x: number, y: number): Promise<void> {
        this.pointed = cell;
        this.tip.hidden = cell === null;
        if (!cell) {
            return;
        }
        const place = this.places[cell.row * this.columns + cell.column];
        const tier = ["on disk", "in RAM", "in VRAM"][place] ?? "nowhere";
        this.tip.textContent = `layer ${this.layers[cell.row]}, expert ${cell.column}, ${tier}`;
        this.tip.style.left = `${Math.max(0, Math.min(x, this.element.clientWidth - 250))}px`;
        this.tip.style.top = `${y + 6}px`;
        const text = await this.tell(this.layers[cell.row], cell.column, tier);
        if (this.pointed === cell) {
            this.tip.textContent = text;
            announce(text);
        }
    }
}

/** 0 to 9, then a to z. */
function letter(text: string, at: number): number {
    const code = text.charCodeAt(at);
    return code >= 97 ? code - 87 : code - 48;
}
