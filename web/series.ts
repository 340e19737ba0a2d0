// A line over the last two minutes.

import { fill, h, s } from "./dom";

const POINTS = 480; // four a second
const WIDE = 300, HIGH = 64;

export class Series {
    readonly element: HTMLElement;
    private readonly values: number[] = [];
    private readonly line = s("path", { class: "series-line" });
    private readonly area = s("path", { class: "series-area" });
    private readonly now = h("b");
    private readonly most = h("span", { class: "quiet" });

    constructor(
        readonly title: string,
        private readonly words: (value: number) => string,
        private readonly top = 0, // of the scale; 0: the largest value
    ) {
        this.element = h("figure", { class: "series" }, h("figcaption", {}, h("span", {}, title), this.now), s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title} over the last two minutes` }, this.area, this.line), this.most);
    }

    add(value: number): void {
        this.values.push(value);
        if (this.values.length > POINTS) {
            this.values.shift();
        }
        const top = this.top || Math.max(...this.values, 1e-9);
        const at = this.values.map((v, i) => `${(WIDE * (POINTS - this.values.length + i)) / (POINTS - 1)} ${(HIGH - 2 - ((HIGH - 4) * v) / top).toFixed(1)}`);
        this.line.setAttribute("d", `M${at.join("L")}`);
        this.area.setAttribute("d", `M${at.join("L")}V${HIGH}H${at[0].split(" ")[0]}Z`);
        this.now.textContent = this.words(value);
        if (!this.top) {
            fill(this.most, `most ${this.words(Math.max(...this.values))}`);
        }
    }
}
