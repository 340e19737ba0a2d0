// What another budget would give: sliders that ask the server's planner.

import { fill, h } from "./dom";
import { type Plan, planBars, planWords } from "./plan";
import { get } from "./server";
import { bytes, count } from "./units";

interface Slider {
    name: string;
    input: HTMLInputElement;
    value(): number;
}

const STEPS = 200;

export class WhatIf {
    readonly element = h("section", { class: "card wide what-if", "aria-labelledby": "what-if" });
    private readonly answer = h("div", { class: "plan", role: "status" });
    private sliders: Slider[] = [];
    private model = "";
    private timer = 0;
    private asked: AbortController | null = null;

    /** Begins with the plan that runs. */
    begin(model: string, p: Plan, madeFor: number): void {
        if (model === this.model) {
            return;
        }
        this.model = model;
        const memory = Math.max(p.whole_bytes * 1.15, p.ceiling_bytes);
        const contexts = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576].filter((n) => n < madeFor).concat(madeFor);
        this.sliders = [
            this.range("ram", "RAM", Math.min(p.least_bytes * 0.8, memory), Math.min(memory, Math.max(p.available_bytes, p.ceiling_bytes)), Math.min(p.ceiling_bytes, memory)),
            ...(p.device ? [this.range("vram", "VRAM", p.device.least_bytes * 0.8, Math.max(p.device.whole_bytes * 1.15, p.device.ceiling_bytes), p.device.ceiling_bytes)] : []),
            this.list("ctx", "Context length", contexts, p.context),
            this.list("batch", "Batch size", [32, 64, 128, 256, 512, 1024, 2048], p.batch),
            this.list("parallel", "Parallel answers", [1, 2, 4, 8, 16, 32], p.parallel),
        ];
        fill(this.element, h("h2", { id: "what-if" }, "What if: plan with other limits"), h("div", { class: "sliders" }, ...this.sliders.map((s) => s.input.parentElement!)), this.answer);
        void this.ask();
    }

    /** Sizes on a scale on which halves are as far apart as doubles. */
    private range(name: string, title: string, low: number, high: number, now: number): Slider {
        const bottom = Math.log(low), top = Math.log(Math.max(high, low * 1.01));
        const mebibytes = (step: number): number => Math.max(1, Math.round(Math.exp(bottom + ((top - bottom) * step) / STEPS) / (1 << 20)));
        const step = Math.round((STEPS * (Math.log(now) - bottom)) / (top - bottom));
        return this.slider(name, title, STEPS, step, (at) => mebibytes(at) * (1 << 20), bytes);
    }

    private list(name: string, title: string, values: number[], now: number): Slider {
        const all = [...new Set([...values, now])].sort((a, b) => a - b);
        return this.slider(name, title, all.length - 1, all.indexOf(now), (at) => all[at], count);
    }

    private slider(name: string, title: string, max: number, at: number, value: (at: number) => number, words: (value: number) => string): Slider {
        const input = h("input", { type: "range", id: `if-${name}`, min: 0, max, step: 1 });
        input.value = String(at);
        const shown = h("output", { for: `if-${name}` });
        const tell = (): void => {
            shown.textContent = words(value(Number(input.value)));
            input.setAttribute("aria-valuetext", shown.textContent);
        };
        input.addEventListener("input", () => {
            tell();
            clearTimeout(this.timer);
            this.timer = window.setTimeout(() => void this.ask(), 120);
        });
        tell();
        h("div", { class: "slider" }, h("label", { for: `if-${name}` }, title), input, shown);
        return { name, input, value: () => value(Number(input.value)) };
    }

    private async ask(): Promise<void> {
        this.asked?.abort();
        this.asked = new AbortController();
        const query = this.sliders.map((s) => `${s.name}=${s.value()}`).join("&");
        this.element.setAttribute("aria-busy", "true");
        try {
            const p = await get<Plan>(`v1/moraine/plan?model=${encodeURIComponent(this.model)}&${query}`, this.asked.signal);
            this.answer.dataset.speed = String(p.tokens_per_second);
            this.answer.dataset.query = query;
            fill(this.answer, ...planWords(p), ...planBars(p));
        } catch (e) {
            if (e instanceof DOMException && e.name === "AbortError") {
                return;
            }
            this.answer.dataset.query = query;
            delete this.answer.dataset.speed;
            fill(this.answer, h("p", { class: "fault" }, e instanceof Error ? e.message : String(e)));
        }
        this.element.removeAttribute("aria-busy");
    }
}
