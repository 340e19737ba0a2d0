// A drawing of many cells, layers by experts: a canvas with a pixel for each, which the browser enlarges, and lines, names and a
// mark above it that are not drawn again. It can be walked with the mouse, by tapping and with the arrow keys.

import { fill, h } from "./dom";

export interface Cell {
    row: number;
    column: number;
}

const NAMES_WIDE = 34, NAMES_HIGH = 18; // of rows, at the left, and of columns, above

export class Grid {
    readonly element: HTMLElement;
    readonly canvas = h("canvas", { tabindex: 0, role: "img", class: "grid-canvas" });
    private readonly context = this.canvas.getContext("2d", { willReadFrequently: true })!; // in memory: it is written, and the browser enlarges it
    private readonly lines = h("div", { class: "grid-lines" });
    private readonly mark = h("div", { class: "grid-mark", hidden: true });
    private readonly rowNames = h("div", { class: "grid-rows", "aria-hidden": "true" });
    private readonly columnNames = h("div", { class: "grid-columns", "aria-hidden": "true" });
    private readonly frame = h("div", { class: "grid-frame" }, this.columnNames, this.canvas, this.lines, this.mark);
    private rows = 0;
    private columns = 0;
    private names: string[] = [];
    private image: ImageData | null = null;
    private pixels = new Uint32Array(0);
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
        this.element = h("div", { class: "grid" }, this.rowNames, this.frame);
        this.canvas.addEventListener("pointermove", (e) => e.pointerType === "mouse" && this.point(e.offsetX, e.offsetY));
        this.canvas.addEventListener("pointerdown", (e) => this.point(e.offsetX, e.offsetY));
        this.canvas.addEventListener("pointerleave", (e) => e.pointerType === "mouse" && this.leave()); // a finger leaves after each tap
        this.canvas.addEventListener("blur", () => this.leave());
        this.canvas.addEventListener("keydown", (e) => this.walk(e));
        new ResizeObserver(() => this.resize()).observe(this.element);
    }

    /** How many cells there are; `names` of the rows. Gives their colours (pixels) to be set before draw(). */
    shape(names: string[], columns: number): Uint32Array {
        if (names.length !== this.rows || columns !== this.columns || !this.image) {
            this.names = names;
            this.rows = names.length;
            this.columns = columns;
            this.canvas.width = Math.max(1, columns);
            this.canvas.height = Math.max(1, names.length);
            this.image = new ImageData(this.canvas.width, this.canvas.height);
            this.pixels = new Uint32Array(this.image.data.buffer);
            this.width = 0;
            this.leave();
            this.resize();
        }
        return this.pixels;
    }

    draw(): void {
        if (this.image) {
            this.context.putImageData(this.image, 0, 0);
        }
    }

    /** Cells of whole pixels of the screen, as large as there is space for. */
    private resize(): void {
        const available = this.element.clientWidth;
        if (available === this.width || this.columns === 0 || available === 0) {
            return;
        }
        this.width = available;
        const ratio = devicePixelRatio || 1;
        this.cellWidth = Math.max(3 / ratio, Math.floor(((available - NAMES_WIDE) / this.columns) * ratio) / ratio);
        const fitting = Math.max(Math.round(this.cellWidth * 1.6), Math.min(18, Math.floor(300 / this.rows)));
        this.cellHeight = Math.max(4, Math.min(this.tallest, fitting, Math.floor(560 / this.rows)));
        const wide = this.cellWidth * this.columns, high = this.cellHeight * this.rows;
        this.frame.style.width = `${wide}px`;
        this.canvas.style.height = this.lines.style.height = `${high}px`;
        this.lines.style.backgroundSize = `${this.cellWidth}px ${this.cellHeight}px`;
        this.lines.classList.toggle("rows-only", this.cellWidth < 5);
        this.lines.hidden = this.cellHeight < 5;
        this.nameAll();
        this.draw();
    }

    private nameAll(): void {
        const place = (text: string, side: "left" | "top", at: number): HTMLElement => {
            const name = h("span", {}, text);
            name.style[side] = `${at}px`;
            return name;
        };
        const everyRow = Math.ceil(14 / this.cellHeight);
        fill(this.rowNames, ...this.names.flatMap((name, i) => (i % everyRow === 0 ? [place(name, "top", NAMES_HIGH + (i + 0.5) * this.cellHeight)] : [])));
        const everyColumn = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].find((n) => n * this.cellWidth >= 34) ?? 1024;
        fill(this.columnNames, ...Array.from({ length: Math.ceil(this.columns / everyColumn) }, (_, i) => place(String(i * everyColumn), "left", Math.max(4, (i * everyColumn + 0.5) * this.cellWidth))));
    }

    private set(cell: Cell | null): void {
        this.at = cell;
        this.mark.hidden = cell === null;
        if (cell) {
            this.mark.style.left = `${cell.column * this.cellWidth}px`;
            this.mark.style.top = `${NAMES_HIGH + cell.row * this.cellHeight}px`;
            this.mark.style.width = `${this.cellWidth}px`;
            this.mark.style.height = `${this.cellHeight}px`;
        }
        this.pointed(cell, cell ? NAMES_WIDE + (cell.column + 0.5) * this.cellWidth - this.element.scrollLeft : 0, cell ? NAMES_HIGH + (cell.row + 1) * this.cellHeight : 0);
    }

    private point(x: number, y: number): void {
        const cell = { row: Math.floor(y / this.cellHeight), column: Math.floor(x / this.cellWidth) };
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
