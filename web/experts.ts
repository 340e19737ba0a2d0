// Where every expert is, live, and the routing of one answer again.

import { fill, h } from "./dom";
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

export class Experts {
    readonly element: HTMLElement;
    private readonly map = new ExpertMap("Experts by layer; the arrow keys walk through them", (layer, expert, tier) => this.tell(layer, expert, tier));
    private readonly head = h("p", { class: "lead" });
    private readonly legend = h("ul", { class: "legend" });
    private readonly table = h("tbody");
    private readonly folded = h("details", { class: "as-table" }, h("summary", {}, "As a table"), h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, ...["Layer", "VRAM", "RAM", "Disk", "Found lately"].map((t) => h("th", { scope: "col" }, t)))), this.table));
    private readonly replay = new RoutingReplay();
    private facts: LayerFacts[] = [];
    private asked = 0;
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
            this.folded,
            this.replay.element,
        );
    }

    show(): void {
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
        this.status = loaded.find((m) => m.id === this.model) ?? loaded[0] ?? null;
        this.say();
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
        }
        this.map.feed(chosen.layers);
        this.say();
    }

    private say(): void {
        const m = this.status;
        const tiers = this.map.tiers();
        const rate = this.map.hitRate();
        if (!m || this.map.layers.length === 0) {
            this.head.textContent = m ? "Waiting for the first event." : "No model with experts is loaded. Ask something, and it will be.";
            return;
        }
        const where = m.device ? "on the device" : "in RAM";
        this.head.textContent = `${m.id}: ${count(this.map.layers.length)} layers with ${count(m.experts ?? 0)} experts, ${m.experts_used} for each token. ` + (rate === null ? "Nobody asks at the moment." : `Of the latest choices ${share(rate)} were found ${where}; ${digits(m.now?.predicted_tokens_s ?? 0)} tokens/s.`);
        const line = (kind: string, text: string) => h("li", {}, h("span", { class: `swatch ${kind}` }), text);
        fill(this.legend, m.device && line("vram", `VRAM ${count(tiers[2])}`), line("ram", `RAM ${count(tiers[1])}`), line("disk", `disk ${count(tiers[0])}`), line("crossing", "crossing, or computed by the CPU"), h("li", { class: "hint" }, "stronger: used lately"));
        if (this.folded.open) {
            fill(this.table, ...this.map.layers.map((layer, row) => h("tr", {}, h("th", { scope: "row" }, layer), ...[2, 1, 0].map((t) => h("td", {}, count(this.map.placesOf(row)[t]))), h("td", {}, found(this.map.hitRate(row))))));
        }
    }

    /** Name, bytes and hits, asked for when somebody points, once a second at most. */
    private async tell(layer: number, expert: number, tier: string): Promise<string> {
        if (Date.now() - this.asked > 1000) {
            this.asked = Date.now();
            try {
                this.facts = (await watch<{ layers: LayerFacts[] }>(`v1/moraine/experts?model=${encodeURIComponent(this.model)}`)).layers;
            } catch {
                // away, or without a key: what is known from the events is told
            }
        }
        const f = this.facts.find((x) => x.layer === layer);
        if (!f) {
            return `layer ${layer}, expert ${expert}, ${tier}`;
        }
        const picks = f.picks[expert] ?? 0, hits = f.hits[expert] ?? 0;
        return `blk.${layer} expert ${expert}, ${tier}, ${bytes(f.expert_bytes)}; chosen ${count(picks)} times, found ${count(hits)} times`;
    }
}

function found(rate: number | null): string {
    return rate === null ? "–" : share(rate);
}
