// A line over the last two minutes, with gaps where there was nothing to measure.

import { h, s, write } from "./dom";

const POINTS = 480; // four a second
const WIDE = 300, HIGH = 64;

export class Series {
    readonly element: HTMLElement;
    private readonly values: (number | null)[] = [];
    private readonly line = s("path", { class: "series-line" });
    private readonly area = s("path", { class: "series-area" });
    private readonly now = h("b");
    private readonly most = h("span", { class: "quiet" });

    constructor(
        readonly title: string,
        private readonly words: (value: number) => string,
        private readonly top = 0, // of the scale; 0: the largest value
    ) {
        this.element = h("figure", { class: "series" }, h("figcaption", {}, h("span", {}, title), this.now), s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}, last two minutes` }, this.area, this.line), this.most);
    }

    /** null: nothing was measured. */
    add(value: number | null): void {
        this.values.push(value);
        if (this.values.length > POINTS) {
            this.values.shift();
        }
        const measured = this.values.filter((v) => v !== null);
        const top = this.top || Math.max(...measured, 1e-9);
        const runs: string[][] = [];
        this.values.forEach((v, i) => {
            if (v !== null) {
                if (i === 0 || this.values[i - 1] === null) {
                    runs.push([]);
                }
                runs.at(-1)!.push(`${((WIDE * (POINTS - this.values.length + i)) / (POINTS - 1)).toFixed(1)} ${(HIGH - 2 - ((HIGH - 4) * v) / top).toFixed(1)}`);
            }
        });
        this.line.setAttribute("d", runs.map((run) => `M${run.join("L")}`).join(""));
        this.area.setAttribute("d", runs.map((run) => `M${run.join("L")}V${HIGH}H${run[0].split(" ")[0]}Z`).join(""));
        write(this.now, value === null ? "–" : this.words(value));
        write(this.most, measured.length === 0 ? "no data yet" : this.top ? "" : `peak ${this.words(Math.max(...measured))}`);
    }
}
