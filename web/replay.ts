// The routing of one answer, played back token by token.

import { ramp } from "./colours";
import { fill, h, icon } from "./dom";
import { Grid } from "./grid";
import { get, ServerError } from "./server";
import { onThemeChange } from "./theme";
import { count } from "./units";

interface Trace {
    layers: number[];
    tokens: { id: number; text: string }[];
    routes: number[][][];
    truncated: boolean;
}

const FADES = 0.75; // from token to token
const STEPS = 32; // of the colour

export class RoutingReplay {
    readonly element = h("section", { class: "replay", "aria-labelledby": "replay", hidden: true });
    private readonly grid = new Grid("Experts used by the highlighted token and, fading, by the tokens before it, by layer", (cell) => this.point(cell?.row, cell?.column));
    private readonly text = h("p", { class: "replay-text", tabindex: 0, role: "group", "aria-label": "Tokens of the answer" });
    private readonly slider = h("input", { type: "range", min: 0, value: 0, "aria-label": "Token", oninput: () => this.go(Number(this.slider.value)) });
    private readonly button = h("button", { type: "button", class: "button", onclick: () => (this.timer ? this.pause() : this.play()) });
    private readonly words = h("p", { class: "quiet", role: "status" });
    private trace: Trace | null = null;
    private columns = 0;
    private timer = 0;
    private at = 0;

    constructor() {
        onThemeChange(() => this.draw());
        this.setButton();
    }

    async open(answer: string): Promise<void> {
        this.pause();
        this.element.hidden = false;
        fill(this.element, h("h2", { id: "replay" }, "Routing of an answer"), this.words);
        this.words.textContent = "Loading…";
        this.element.scrollIntoView({ block: "start" });
        try {
            this.trace = await get<Trace>(`v1/moraine/trace/${encodeURIComponent(answer)}`);
        } catch (e) {
            this.words.textContent = e instanceof ServerError && e.status === 404 ? "The server keeps the routing of its last 32 answers only. Generate this answer again to see its routing." : String(e instanceof Error ? e.message : e);
            return;
        }
        const t = this.trace;
        this.columns = 1 + t.routes.reduce((most, token) => token.reduce((m, layer) => layer.reduce((a, b) => Math.max(a, b), m), most), 0);
        this.slider.max = String(Math.max(0, t.routes.length - 1));
        fill(this.text, ...t.tokens.map((token, i) => h("span", { class: "token", onclick: () => (this.pause(), this.go(i)) }, token.text)));
        fill(this.element, h("h2", { id: "replay" }, "Routing of an answer"), this.text, h("div", { class: "replay-bar" }, this.button, this.slider), this.grid.element, this.words);
        this.go(0);
        this.play();
    }

    pause(): void {
        clearInterval(this.timer);
        this.timer = 0;
        this.setButton();
    }

    private play(): void {
        if (this.trace && this.at >= this.trace.routes.length - 1) {
            this.at = 0;
        }
        this.timer = window.setInterval(() => this.step(), 100);
        this.setButton();
    }

    private setButton(): void {
        fill(this.button, icon(this.timer ? "stop" : "play"), this.timer ? "Pause" : "Play");
    }

    private step(): void {
        if (this.trace && this.at < this.trace.routes.length - 1) {
            this.go(this.at + 1);
        } else {
            this.pause();
        }
    }

    private go(at: number): void {
        const t = this.trace;
        if (!t) {
            return;
        }
        this.at = Math.min(at, Math.max(0, t.routes.length - 1));
        this.slider.value = String(this.at);
        this.slider.setAttribute("aria-valuetext", `token ${this.at + 1} of ${t.routes.length}: ${t.tokens[this.at]?.text ?? ""}`);
        this.text.querySelector(".now")?.classList.remove("now");
        this.text.children[this.at]?.classList.add("now");
        this.words.textContent = `Token ${count(this.at + 1)} of ${count(t.routes.length)}${t.truncated ? " (the rest was not recorded)" : ""}`;
        this.draw();
    }

    private draw(): void {
        const t = this.trace;
        if (!t) {
            return;
        }
        const out = this.grid.shape(t.layers.map(String), this.columns);
        const heat = new Float32Array(t.layers.length * this.columns);
        for (let i = Math.max(0, this.at - 16); i <= this.at; i++) {
            t.routes[i]?.forEach((experts, row) => experts.forEach((e) => (heat[row * this.columns + e] = Math.max(heat[row * this.columns + e], FADES ** (this.at - i)))));
        }
        const colours = ramp("--sunken", "--accent", STEPS);
        heat.forEach((v, i) => (out[i] = colours[Math.round((STEPS - 1) * v)]));
        this.grid.draw();
    }

    private point(row: number | undefined, expert: number | undefined): void {
        const t = this.trace;
        if (t && row !== undefined && expert !== undefined) {
            const tokens = t.routes.filter((token) => token[row]?.includes(expert)).length;
            this.words.textContent = `Layer ${t.layers[row]}, expert ${expert}: used by ${count(tokens)} of ${count(t.routes.length)} tokens`;
        }
    }
}
