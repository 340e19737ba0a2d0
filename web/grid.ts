// A drawing of many cells, layers by experts: a small picture with a point for each, enlarged, with lines between. It can be
// walked with the mouse and with the arrow keys.

import { h } from "./dom";
import { colour } from "./theme";

export interface Cell {
    row: number;
    column: number;
}

const LABELS = 34; // of rows, at the left

export class Grid {
    readonly element: HTMLElement;
    readonly canvas = h("canvas", { tabindex: 0, role: "img", class: "grid-canvas" });
    private readonly context = this.canvas.getContext("2d")!;
    private readonly small = h("canvas");
    private rows = 0;
    private columns = 0;
    private names: string[] = [];
    private pixels: ImageData | null = null;
    private width = 0;
    private cellWidth = 0;
    private cellHeight = 0;
    private at: Cell | null = null;

    constructor(
        label: string,
        private readonly pointed: (cell: Cell | null, x: number, y: number) => void,
        private readonly tallest = 20,
    ) {
        this.canvas.setAttribute("aria-label", label);
        this.element = h("div", { class: "grid" }, this.canvas);
        this.canvas.addEventListener("pointermove", (e) => this.point(e.offsetX, e.offsetY));
        this.canvas.addEventListener("pointerleave", () => this.leave());
        this.canvas.addEventListener("blur", () => this.leave());
        this.canvas.addEventListener("keydown", (e) => this.walk(e));
        new ResizeObserver(() => this.resize()).observe(this.element);
    }

    /** How many cells there are; `names` of the rows. Gives their colours (RGBA) to be set before draw(). */
    shape(names: string[], columns: number): Uint8ClampedArray {
        if (names.length !== this.rows || columns !== this.columns || !this.pixels) {
            this.names = names;
            this.rows = names.length;
            this.columns = columns;
            this.small.width = Math.max(1, columns);
            this.small.height = Math.max(1, names.length);
            this.pixels = new ImageData(this.small.width, this.small.height);
            this.width = 0;
            this.resize();
        }
        return this.pixels.data;
    }

    private resize(): void {
        const available = this.element.clientWidth;
        if (available === this.width || this.columns === 0 || available === 0) {
            return;
        }
        this.width = available;
        const ratio = devicePixelRatio || 1;
        this.cellWidth = Math.max(3, Math.floor(((available - LABELS) / this.columns) * ratio) / ratio);
        const fitting = Math.max(Math.round(this.cellWidth * 1.6), Math.min(18, Math.floor(300 / this.rows)));
        this.cellHeight = Math.max(5, Math.min(this.tallest, fitting, Math.floor(560 / this.rows)));
        const wide = LABELS + this.cellWidth * this.columns, high = this.cellHeight * this.rows;
        this.canvas.width = Math.round(wide * ratio);
        this.canvas.height = Math.round(high * ratio);
        this.canvas.style.width = `${wide}px`;
        this.canvas.style.height = `${high}px`;
        this.draw();
    }

    draw(): void {
        if (!this.pixels || this.cellWidth === 0) {
            return;
        }
        const c = this.context, ratio = devicePixelRatio || 1;
        this.small.getContext("2d")!.putImageData(this.pixels, 0, 0);
        c.setTransform(ratio, 0, 0, ratio, 0, 0);
        c.clearRect(0, 0, this.canvas.width, this.canvas.height);
        c.imageSmoothingEnabled = false;
        c.drawImage(this.small, LABELS, 0, this.cellWidth * this.columns, this.cellHeight * this.rows);
        c.fillStyle = colour("--paper");
        const line = this.cellWidth >= 6 ? 1 : 0.5;
        for (let i = 0; i <= this.columns; i++) {
            c.fillRect(LABELS + i * this.cellWidth - line, 0, line, this.cellHeight * this.rows);
        }
        for (let i = 0; i <= this.rows; i++) {
            c.fillRect(LABELS, i * this.cellHeight - line, this.cellWidth * this.columns, line);
        }
        this.drawNames();
        if (this.at) {
            c.strokeStyle = colour("--ink");
            c.lineWidth = 1.5;
            c.strokeRect(LABELS + this.at.column * this.cellWidth - 1, this.at.row * this.cellHeight - 1, this.cellWidth + 1, this.cellHeight + 1);
        }
    }

    private drawNames(): void {
        const c = this.context;
        const every = Math.ceil(14 / this.cellHeight);
        c.fillStyle = colour("--soft");
        c.font = `11px ${colour("--sans")}`;
        c.textAlign = "right";
        c.textBaseline = "middle";
        for (let i = 0; i < this.rows; i += every) {
            const y = (i + 0.5) * this.cellHeight;
            c.fillText(this.names[i], LABELS - 8, Math.min(Math.max(y, 6), this.rows * this.cellHeight - 6)); // not cut at the edges
        }
    }

    private set(cell: Cell | null): void {
        this.at = cell;
        this.draw();
        this.pointed(cell, cell ? LABELS + (cell.column + 0.5) * this.cellWidth - this.element.scrollLeft : 0, cell ? (cell.row + 1) * this.cellHeight : 0);
    }

    private point(x: number, y: number): void {
        const cell = { row: Math.floor(y / this.cellHeight), column: Math.floor((x - LABELS) / this.cellWidth) };
        const inside = cell.row >= 0 && cell.row < this.rows && cell.column >= 0 && cell.column < this.columns;
        if (!inside) {
            this.leave();
        } else if (cell.row !== this.at?.row || cell.column !== this.at.column) {
            this.set(cell);
        }
    }

    private leave(): void {
        if (this.at) {
            this.set(null);
        }
    }

    private walk(e: KeyboardEvent): void {
        const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
        const step = steps[e.key];
        if (step && this.rows > 0) {
            e.preventDefault();
            const from = this.at ?? { row: step[0] > 0 ? -1 : 0, column: step[1] > 0 ? -1 : 0 };
            this.set({ row: Math.min(this.rows - 1, Math.max(0, from.row + step[0])), column: Math.min(this.columns - 1, Math.max(0, from.column + step[1])) });
        } else if (e.key === "Escape") {
            this.leave();
        }
    }
}

/** The red, green and blue of a colour of the style sheet. */
export function rgb(name: string): [number, number, number] {
    const hex = colour(name).replace("#", "");
    return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)) as [number, number, number];
}

export function mix(out: Uint8ClampedArray, at: number, a: [number, number, number], b: [number, number, number], share: number): void {
    for (let i = 0; i < 3; i++) {
        out[at + i] = a[i] + (b[i] - a[i]) * share;
    }
    out[at + 3] = 255;
}
