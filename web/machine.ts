// The machine: the plan, transfers, what tokens cost, where a layer's time goes, sessions, the log, and what another budget would give.

import { fill, h, iconButton, term, write } from "./dom";
import { type Lanes, listen, listenLog, type LiveModel, type LogLine, type Phase, type Status } from "./live";
import { type Plan, planBars, planWords } from "./plan";
import { get, send, watch } from "./server";
import { Series } from "./series";
import { bytes, count, digits, plural, rate, seconds, share } from "./units";
import { WhatIf } from "./what_if";

const LOG_LINES = 200;
const links: Record<string, [string, string]> = {
    disk: ["Disk to RAM", "Reads from the model file: experts and layers that are not in RAM"],
    ram: ["RAM to CPU", "Weights that the CPU reads to compute with them"],
    link: ["RAM to GPU", "Copies over the bus (PCIe or NVLink) to the GPU's memory"],
};
const held: Record<string, string> = { sequence: "in use", device: "VRAM", ram: "RAM", disk: "disk" };

interface Session {
    id: string;
    tokens: number;
    bytes?: number;
    where: string[];
    idle_s?: number;
}

function card(id: string, title: string, ...content: Node[]): HTMLElement {
    return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), ...content);
}

/** Half of the width, also where there are four columns. */
function half(card: HTMLElement): HTMLElement {
    card.classList.add("half");
    return card;
}

export class Machine {
    readonly element: HTMLElement;
    private readonly head = h("p", { class: "lead" });
    private readonly plan = h("div", { class: "plan" });
    private readonly transfers = h("div", { class: "transfers" });
    private readonly guesses = h("p", { class: "quiet guesses", hidden: true });
    private readonly lanes = h("div", { class: "lanes" });
    private readonly sessions = h("div");
    private readonly log = h("pre", { class: "log", tabindex: 0, "aria-label": "Server log" });
    private readonly whatIf = new WhatIf();
    private readonly series = {
        speed: new Series("Tokens per second", digits),
        hits: new Series("Expert hit rate", share, 1),
        disk: new Series("Disk reads per token", bytes),
        link: new Series("GPU copies per token", bytes),
    };
    private stops: (() => void)[] = [];
    private readonly fastest: Record<string, number> = {}; // rate of each transfer so far, in bytes per second
    private planned = "";
    private lines: LogLine[] = [];
    private latest: LiveModel | null = null;
    private asked = 0; // for the sessions
    private later = 0; // a timer that will ask

    constructor() {
        this.element = h(
            "div",
            { class: "data-view" },
            h("div", { class: "data-head" }, h("h1", {}, "Machine"), this.head),
            h(
                "div",
                { class: "cards" },
                card("plan-title", "Plan", this.plan),
                card("tokens-title", "Last two minutes", h("div", { class: "all-series" }, ...Object.values(this.series).map((x) => x.element)), this.guesses),
                card("transfers-title", "Transfers", this.transfers),
                card("lanes-title", "Time per layer", this.lanes),
                this.whatIf.element,
                half(card("sessions-title", "Sessions and prefix cache", this.sessions)),
                half(card("log-title", "Log", this.log)),
            ),
        );
    }

    show(): void {
        this.lines = [];
        this.stops = [listen((s) => this.onStatus(s)), listenLog((lines) => this.onLog(lines))];
    }

    hide(): void {
        this.stops.forEach((stop) => stop());
        clearTimeout(this.later);
        this.later = 0;
    }

    private onStatus(s: Status): void {
        const m = s.models.find((x) => x.state === "loaded");
        if (!m) {
            this.head.textContent = "No model is loaded. Send a message to load one.";
            return;
        }
        const e = m.engine;
        const queued = e?.queued ? `, ${count(e.queued)} queued` : "";
        write(this.head, `Moraine ${s.version}: ${m.id} (${m.architecture}), ${modes[m.tiers?.mode ?? ""] ?? m.tiers?.mode}. ${e?.busy ? `Generating ${plural(e.busy, "answer")} of at most ${count(e.parallel)} in parallel${queued}.` : "Idle."}`);
        if (this.planned !== m.id) {
            this.planned = m.id;
            void this.showPlan(m);
        }
        this.showTransfers(m);
        this.showTokens(m);
        this.showLanes(m);
        this.latest = m;
        if (!this.later) { // every two seconds, and once after the last event
            this.later = window.setTimeout(() => {
                this.later = 0;
                this.asked = Date.now();
                void this.showSessions(this.latest!);
            }, Math.max(0, this.asked + 2000 - Date.now()));
        }
    }

    private async showPlan(m: LiveModel): Promise<void> {
        try {
            const p = await get<Plan>(`v1/moraine/plan?model=${encodeURIComponent(m.id)}`);
            fill(this.plan, ...planBars(p), ...planWords(p));
            this.whatIf.begin(m.id, p, m.made_for ?? p.context);
        } catch (e) {
            fill(this.plan, h("p", { class: "fault" }, e instanceof Error ? e.message : String(e)));
        }
    }

    private showTransfers(m: LiveModel): void {
        const wires = m.wires ?? [];
        if (this.transfers.childElementCount !== wires.length) {
            fill(this.transfers, ...wires.map((w) => transferRow(...(links[w.name] ?? [w.name, ""]))));
        }
        wires.forEach((w, i) => {
            const row = this.transfers.children[i], track = row.querySelector<HTMLElement>(".lane-track")!;
            this.fastest[w.name] = Math.max(this.fastest[w.name] ?? 1, w.bytes_s);
            const full = w.probed_bytes_s || this.fastest[w.name];
            const words = rate(w.bytes_s) + (w.probed_bytes_s ? ` of ${rate(w.probed_bytes_s)} measured` : this.fastest[w.name] > 1 ? `, peak ${rate(this.fastest[w.name])}` : "");
            row.querySelector<HTMLElement>(".level")!.style.width = `${Math.min(100, (100 * w.bytes_s) / full)}%`;
            write(row.querySelector(".now")!, words);
            write(row.querySelector(".total")!, `${bytes(w.bytes)} in total`);
            track.setAttribute("aria-valuemax", String(full));
            track.setAttribute("aria-valuenow", String(Math.min(full, w.bytes_s)));
            track.setAttribute("aria-valuetext", words);
        });
    }

    private showTokens(m: LiveModel): void {
        const now = m.now;
        if (now) {
            const busy = now.predicted_tokens_s > 0; // otherwise there is no token that anything could be per
            this.series.speed.add(now.predicted_tokens_s);
            this.series.hits.add(now.experts_per_token > 0 ? now.hits_per_token / now.experts_per_token : null);
            this.series.disk.add(busy ? now.disk_bytes_per_token : null);
            this.series.link.add(busy ? now.link_bytes_per_token : null);
            this.series.link.element.hidden = !m.device;
        }
        const s = m.speculation;
        this.guesses.hidden = !s?.drafted;
        if (s?.drafted) {
            write(this.guesses, `Speculative decoding since the start: ${plural(s.drafted, "guessed token")}, ${share(s.accepted / s.drafted)} of them right; ${digits(s.tokens_per_step)} tokens per step with guesses; generation about ${digits(s.gain)} times as fast as without.`);
        }
    }

    private showLanes(m: LiveModel): void {
        const l = m.device?.lanes;
        if (l && l.served > 0) {
            if (!this.lanes.querySelector(".lane")) {
                fill(this.lanes, ...lanes.map(([name, explanation, , kind]) => h("div", { class: "lane" }, term(name, explanation), h("span", { class: "lane-track" }, h("span", { class: `lane-fill ${kind}` })), h("span", { class: "quiet time" }))), h("p", { class: "quiet spread" }));
            }
            const most = Math.max(...lanes.map(([, , key]) => l[key]), 1e-9);
            lanes.forEach(([, , key], i) => {
                const row = this.lanes.children[i];
                row.querySelector<HTMLElement>(".lane-fill")!.style.width = `${(100 * l[key]) / most}%`;
                write(row.querySelector(".time")!, seconds(l[key] / l.served));
            });
            write(this.lanes.querySelector(".spread")!, `Averages of layers that needed the host. Median ${seconds(m.device!.layer_p50_s)}, 99th percentile ${seconds(m.device!.layer_p99_s)}.`);
            return;
        }
        const words = m.device ? ["No layer has needed the host so far: all experts it used were in VRAM, or nothing has been generated yet."] : withoutDevice(m);
        if (this.lanes.textContent !== words.join("")) {
            fill(this.lanes, ...words.map((text) => h("p", {}, text)));
        }
    }

    private async showSessions(m: LiveModel): Promise<void> {
        const e = m.engine!;
        let list: Session[] = [];
        try {
            list = (await watch<{ sessions: Session[] }>(`v1/moraine/sessions?model=${encodeURIComponent(m.id)}`)).sessions;
        } catch {
            // a model that is being unloaded
        }
        fill(
            this.sessions,
            h("p", {}, `${plural(e.kept_sessions, "cached prefix", "cached prefixes")} in ${bytes(e.kept_session_bytes)} of memory${e.disk_sessions > 0 ? `, ${count(e.disk_sessions)} in ${bytes(e.disk_session_bytes)} on disk` : ""}. ${reused(e.prompt_tokens, e.cached_tokens)}`),
            list.length > 0 &&
                h(
                    "table",
                    { class: "numbers" },
                    h("thead", {}, h("tr", {}, ...["Session", "Tokens", "Size", "Location", ""].map((t) => h("th", { scope: "col" }, t || h("span", { class: "offscreen" }, "Actions"))))),
                    h("tbody", {}, ...list.slice(0, 12).map((x) => h("tr", {}, h("th", { scope: "row" }, x.id), h("td", {}, count(x.tokens)), h("td", {}, x.bytes === undefined ? "–" : bytes(x.bytes)), h("td", {}, x.where.map((w) => held[w] ?? w).join(", ")), h("td", {}, iconButton("trash", `Delete ${x.id}`, () => void this.forget(m, x.id)))))),
                ),
        );
    }

    private async forget(m: LiveModel, id: string): Promise<void> {
        await send(`v1/moraine/sessions/${encodeURIComponent(id)}?model=${encodeURIComponent(m.id)}`, { method: "DELETE" }).catch(() => {});
        void this.showSessions(m);
    }

    private onLog(lines: LogLine[]): void {
        const newest = this.lines.at(-1)?.number ?? 0;
        this.lines = [...this.lines, ...lines.filter((l) => l.number > newest)].slice(-LOG_LINES);
        const follows = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 30;
        this.log.textContent = this.lines.map((l) => l.text).join("\n");
        if (follows) {
            this.log.scrollTop = this.log.scrollHeight;
        }
    }
}

/** `computed` prompt tokens were not in the cache. */
function reused(computed: number, cached: number): string {
    const all = computed + cached;
    return all > 0 ? `Of ${plural(all, "prompt token")}, ${count(cached)} (${share(cached / all)}) came from the cache.` : "No prompt has been read yet.";
}

function transferRow(name: string, explanation: string): HTMLElement {
    const track = h("div", { class: "lane-track", role: "meter", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": 0 }, h("span", { class: "lane-fill level" }));
    return h("div", { class: "transfer" }, term(name, explanation), h("span", { class: "quiet now" }), track, h("span", { class: "quiet total" }));
}

const modes: Record<string, string> = { resident: "all weights in memory", slots: "experts cached in memory, the rest on disk", tiered: "experts cached in memory, the rest on disk", streamed: "layers and experts streamed from disk", mapped: "memory-mapped" };

/** What takes a layer's time on a device: name, explanation, field, colour. */
const lanes: [string, string, keyof Lanes, string][] = [
    ["GPU", "Attention, shared weights and experts in VRAM, until the host sees which experts were chosen", "core_s", "vram"],
    ["Host overhead", "Sorting the chosen experts, starting copies, launching kernels, returning results", "turn_s", "disk"],
    ["CPU experts", "The CPU computes experts that are not in VRAM", "cpu_s", "ram"],
    ["Expert copies", "Experts that are not in VRAM are copied to the GPU while the CPU computes others", "fetch_s", "loading"],
    ["GPU waiting", "The GPU has finished and waits for the CPU's results", "device_wait_s", "rest"],
    ["CPU waiting", "The CPU has finished and waits for copies", "host_wait_s", "rest"],
];

/** Without a device a layer's time is the CPU's and the disk's. */
function withoutDevice(m: LiveModel): string[] {
    const t = m.tiers;
    const phases: [string, Phase | undefined][] = [["Generating", t?.generation], ["Reading prompts", t?.prompt]];
    const words = phases.flatMap(([name, p]) => (p && p.passes > 0 ? [`${name}: ${seconds(p.wait_s / p.passes / (m.layers ?? 1))} per layer waiting for the disk, on average; hit rate in RAM ${share(p.hit_rate)}.`] : []));
    const some = (m.engine?.prompt_tokens ?? 0) + (m.engine?.predicted_tokens ?? 0) > 0;
    return [...(words.length > 0 ? words : [some ? "All weights are in RAM: no layer waits for the disk." : "No tokens have been processed yet."]), "The CPU computes every layer. The Profile view shows the time by layer."];
}
