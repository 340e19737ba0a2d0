// The map of experts: hue for the place, brightness for use, another hue for what was just loaded or computed by the CPU. It is
// fed four times a second at most and drawn five times while something fades; when all is quiet nothing is drawn.

import { CellColours, CLEAR } from "./colours";
import { announce, h } from "./dom";
import { type Cell, Grid } from "./grid";
import { onThemeChange } from "./theme";

export interface LayerEvent {
    layer: number;
    places: string;
    used: string;
    missed: string;
}

const FRAME_MS = 200;
const USE_FADES = 0.87; // of what is left after a frame: half in a second
const LEVELS = 24; // of use
const FADES = 2, HELD = 2, REST = 2; // frames: an event is shown for 400 ms before it fades, and the place that long before the next
const NOWHERE = 255; // a cell without an expert: layers may have different numbers of them
const LOADING = 1, BY_CPU = 2;
const RAM = 1, VRAM = 2;

export class ExpertMap {
    readonly element: HTMLElement;
    readonly layers: number[] = [];
    private readonly tip = h("div", { class: "tip", hidden: true });
    private readonly grid: Grid;
    private columns = 0;
    private places = new Uint8Array(0);
    private counts = new Float64Array(0); // uses so far
    private heat = new Float32Array(0); // recent ones
    private event = new Uint8Array(0); // what happened to a cell last,
    private shown = new Int8Array(0); // and for how many frames that is still shown; from 0 to -REST it is the place's turn
    private readonly used: number[] = []; // by layer, fading
    private readonly found: number[] = [];
    private colours: CellColours | null = null;
    private most = 1; // recent uses of an expert, as the brightest one had them,
    private often = 1; // and uses so far
    private timer = 0;
    private pointed: Cell | null = null;

    constructor(
        label: string,
        private readonly tell: (layer: number, expert: number, tier: string) => Promise<string>,
    ) {
        this.grid = new Grid(label, (cell, x, y) => void this.point(cell, x, y), 28);
        this.element = h("div", { class: "map" }, this.grid.element, this.tip);
        onThemeChange(() => {
            this.colours = null;
            this.draw();
        });
    }

    /** Forgets everything: another model. */
    clear(): void {
        this.layers.length = 0;
        this.columns = 0;
    }

    /** `device`: experts that are not in VRAM are computed by the CPU, and not only read. */
    feed(events: LayerEvent[], device: boolean): void {
        const columns = Math.max(0, ...events.map((e) => e.places.length));
        if (events.length !== this.layers.length || columns !== this.columns) {
            this.reset(events, columns);
        }
        events.forEach((e, row) => this.feedRow(e, row, device));
        if (!this.timer) {
            this.draw();
            this.timer = window.setInterval(() => this.frame(), FRAME_MS);
        }
    }

    private reset(events: LayerEvent[], columns: number): void {
        this.layers.splice(0, this.layers.length, ...events.map((e) => e.layer));
        this.columns = columns;
        const cells = columns * events.length;
        this.places = new Uint8Array(cells).fill(NOWHERE);
        this.counts = new Float64Array(cells);
        this.heat = new Float32Array(cells);
        this.event = new Uint8Array(cells);
        this.shown = new Int8Array(cells).fill(-REST);
        this.most = this.often = 1;
        this.used.splice(0, this.used.length, ...events.map(() => 0));
        this.found.splice(0, this.found.length, ...events.map(() => 0));
    }

    private feedRow(e: LayerEvent, row: number, device: boolean): void {
        for (let i = 0; i < e.places.length; i++) {
            const at = row * this.columns + i;
            const used = letter(e.used, i), missed = letter(e.missed, i);
            const before = this.places[at], place = e.places.charCodeAt(i) - 48;
            const loaded = (before !== NOWHERE && place > before) || (missed > 0 && (!device || place !== RAM));
            if ((loaded || missed > 0) && this.shown[at] === -REST) {
                this.event[at] = loaded ? LOADING : BY_CPU;
                this.shown[at] = HELD + FADES;
            }
            this.places[at] = place;
            this.counts[at] += used;
            this.heat[at] += used;
            this.most = Math.max(this.most, this.heat[at]);
            this.often = Math.max(this.often, this.counts[at]);
            this.used[row] += used;
            this.found[row] += used - missed;
        }
    }

    /** How often each expert was used, before what is fed from now on. */
    count(layers: { layer: number; picks: number[] }[]): void {
        for (const { layer, picks } of layers) {
            const row = this.layers.indexOf(layer);
            if (row >= 0) {
                picks.slice(0, this.columns).forEach((n, i) => (this.counts[row * this.columns + i] = n));
            }
        }
        this.often = this.counts.reduce((a, b) => Math.max(a, b), 1);
        this.draw();
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

    /** The share of recent uses that found the expert where it is computed fastest. */
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
        let busy = false;
        for (let i = 0; i < this.heat.length; i++) {
            this.heat[i] *= USE_FADES;
            this.shown[i] -= this.shown[i] > -REST ? 1 : 0;
            busy = busy || this.heat[i] > 0.02 || this.shown[i] > -REST;
        }
        for (let row = 0; row < this.used.length; row++) {
            this.used[row] *= 0.96;
            this.found[row] *= 0.96;
        }
        this.most = Math.max(1, 0.96 * this.most);
        this.draw();
        if (!busy) {
            this.stop();
        }
    }

    private draw(): void {
        const out = this.grid.shape(this.layers.map(String), this.columns);
        this.colours = this.colours ?? new CellColours(["--disk", "--ram", "--vram"], ["--loading", "--by-cpu"], LEVELS, FADES);
        let changed = false;
        for (let i = 0; i < this.places.length; i++) {
            const shown = this.shown[i];
            const all = 0.7 * Math.sqrt(this.counts[i] / this.often); // uses so far, which are what is left when nothing happens
            const level = all + (1 - all) * Math.sqrt(this.heat[i] / this.most);
            const pixel = this.places[i] > VRAM ? CLEAR : this.colours.of(this.places[i], shown > 0 ? this.event[i] : 0, Math.max(0, Math.min(shown, FADES) - 1), level);
            changed = changed || pixel !== out[i];
            out[i] = pixel;
        }
        if (changed) {
            this.grid.draw();
        }
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
