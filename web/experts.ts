// Where every expert is, live, and the routing of one answer.

import { fill, h, write } from "./dom";
import { ExpertMap, type LayerEvent } from "./expert_map";
import { listen, listenExperts, type LiveModel, type Status } from "./live";
import { RoutingReplay } from "./replay";
import { watch } from "./server";
import { bytes, count, digits, share } from "./units";

interface LayerFacts {
    layer: number;
    expert_bytes: number;
    picks: number[];
    hits: number[];
}

const EXPLAINED = [
    "Each row is a layer, each cell an expert. The colour shows where its weights are: in VRAM, in RAM or on disk only.",
    "The more an expert is used, the stronger the colour of its cell; recent uses count most.",
    "Just loaded: the weights moved to a faster tier, or a token needed them and they were read from disk.",
    "Computed by the CPU: a token needed the expert, which was not in VRAM. The CPU computed it from RAM, or its weights were copied to the GPU for that token.",
];

export class Experts {
    readonly element: HTMLElement;
    private readonly map = new ExpertMap("Map of experts: a row for each layer, a column for each expert. Arrow keys select a cell.", (layer, expert, tier) => this.tell(layer, expert, tier));
    private readonly head = h("p", { class: "lead" });
    private readonly legend = h("ul", { class: "legend" });
    private readonly table = h("tbody");
    private readonly folded = h("details", { class: "as-table", ontoggle: () => this.say(true) }, h("summary", {}, "As a table"), h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, ...["Layer", "VRAM", "RAM", "Disk", "Recent hit rate"].map((t) => h("th", { scope: "col", class: `in-${t}` }, t)))), this.table));
    private readonly replay = new RoutingReplay();
    private facts: LayerFacts[] = [];
    private asked = 0;
    private said = 0; // when the words were written,
    private dense = false; // the loaded model has no experts
    private idle = true; // and what they said
    private counted = false; // the map knows the uses so far
    private model = "";
    private stops: (() => void)[] = [];
    private status: LiveModel | null = null;

    constructor() {
        this.element = h(
            "div",
            { class: "data-view" },
            h("div", { class: "data-head" }, h("h1", {}, "Experts"), this.head),
            this.legend,
            this.map.element,
            h("details", { class: "as-table" }, h("summary", {}, "How to read this map"), h("ul", { class: "explained" }, ...EXPLAINED.map((text) => h("li", {}, text)))),
            this.folded,
            this.replay.element,
        );
    }

    show(): void {
        this.counted = false;
        this.stops = [listen((s) => this.onStatus(s)), listenExperts((models) => this.onExperts(models))];
    }

    hide(): void {
        this.stops.forEach((stop) => stop());
        this.map.stop();
        this.replay.pause();
    }

    /** Shows which experts the tokens of an answer used, by its id. */
    replayOf(answer: string): void {
        void this.replay.open(answer);
    }

    private onStatus(s: Status): void {
        const loaded = s.models.filter((m) => m.state === "loaded" && (m.experts ?? 0) > 0);
        const before = this.status;
        this.status = loaded.find((m) => m.id === this.model) ?? loaded[0] ?? null;
        this.dense = !this.status && s.models.some((m) => m.state === "loaded");
        this.say(before?.id !== this.status?.id || !this.status);
    }

    private onExperts(models: { model: string; layers: LayerEvent[] }[]): void {
        const busiest = models.find((m) => m.layers.some((l) => /[^0]/.test(l.used)));
        const chosen = busiest ?? models.find((m) => m.model === this.model) ?? models[0];
        if (!chosen) {
            return;
        }
        if (chosen.model !== this.model) {
            this.model = chosen.model;
            this.map.clear();
            this.facts = [];
            this.counted = false;
        }
        this.map.feed(chosen.layers, Boolean(this.status?.device));
        if (!this.counted) {
            this.counted = true;
            void this.ask().then(() => this.map.count(this.facts));
            this.said = 0;
        }
        this.say(false);
    }

    /** The words above and below the map; figures that change all the time once a second. */
    private say(now: boolean): void {
        const m = this.status;
        const rate = this.map.hitRate();
        if (!now && Date.now() - this.said < 1000 && (rate === null) === this.idle) {
            return;
        }
        this.said = Date.now();
        this.idle = rate === null;
        const tiers = this.map.tiers();
        if (!m || this.map.layers.length === 0) {
            this.head.textContent = m ? "Waiting for data from the server." : this.dense ? "The loaded model is dense: it has no experts." : "No model with experts is loaded. Send a message to load one.";
            return;
        }
        const speed = m.now?.predicted_tokens_s ?? 0;
        const doing = rate === null ? "Idle: the stronger a colour, the more the expert has been used so far." : `Recent hit rate in ${m.device ? "VRAM" : "RAM"}: ${share(rate)}${speed > 0 ? `; ${digits(speed)} tokens/s` : ""}.`;
        write(this.head, `${m.id}: ${count(this.map.layers.length)} layers of ${count(m.experts ?? 0)} experts, ${m.experts_used} used per token. ${doing}`);
        const device = Boolean(m.device);
        if (this.legend.childElementCount === 0 || this.legend.classList.contains("with-device") !== device) {
            this.legend.classList.toggle("with-device", device);
            this.folded.classList.toggle("no-device", !device);
            const line = (kind: string, text: string) => h("li", {}, h("span", { class: `swatch ${kind}` }), h("span", { class: `count-${kind}` }, text));
            fill(this.legend, device && line("vram", "VRAM"), line("ram", "RAM"), line("disk", "disk"), line("loading", "just loaded"), device && line("by-cpu", "computed by the CPU"), h("li", { class: "hint" }, "stronger colour: used more"));
        }
        [["disk", "disk"], ["ram", "RAM"], ["vram", "VRAM"]].forEach(([kind, name], tier) => {
            const words = this.legend.querySelector(`.count-${kind}`);
            if (words) {
                write(words, `${name} ${count(tiers[tier])}`);
            }
        });
        if (this.folded.open) {
            fill(this.table, ...this.map.layers.map((layer, row) => h("tr", {}, h("th", { scope: "row" }, layer), ...[2, 1, 0].map((t) => h("td", { class: t === 2 ? "in-VRAM" : null }, count(this.map.placesOf(row)[t]))), h("td", {}, found(this.map.hitRate(row))))));
        }
    }

    private async ask(): Promise<void> {
        this.asked = Date.now();
        try {
            this.facts = (await watch<{ layers: LayerFacts[] }>(`v1/moraine/experts?model=${encodeURIComponent(this.model)}`)).layers;
        } catch {
            // away, or without a key: the page shows what it has from the events
        }
    }

    /** Name, bytes and hits, asked for when somebody points, once a second at most. */
    private async tell(layer: number, expert: number, tier: string): Promise<string> {
        if (Date.now() - this.asked > 1000) {
            await this.ask();
        }
        const f = this.facts.find((x) => x.layer === layer);
        if (!f) {
            return `layer ${layer}, expert ${expert}, ${tier}`;
        }
        const picks = f.picks[expert] ?? 0, hits = f.hits[expert] ?? 0;
        const rate = picks > 0 ? `, ${share(hits / picks)} of them hits in ${this.status?.device ? "VRAM" : "RAM"}` : "";
        return `layer ${layer}, expert ${expert}, ${tier}, ${bytes(f.expert_bytes)}; used ${count(picks)} ${picks === 1 ? "time" : "times"}${rate}`;
    }
}

function found(rate: number | null): string {
    return rate === null ? "–" : share(rate);
}
