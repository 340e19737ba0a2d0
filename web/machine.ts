// The machine: the plan, wires, what tokens cost, where a layer's time goes, sessions, the log, and what another budget would give.

import { fill, h, iconButton } from "./dom";
import { type Lanes, listen, listenLog, type LiveModel, type LogLine, type Status } from "./live";
import { type Plan, planBars, planWords } from "./plan";
import { get, send, watch } from "./server";
import { Series } from "./series";
import { bytes, count, digits, plural, rate, seconds, share } from "./units";
import { WhatIf } from "./what_if";

const LOG_LINES = 200;
const wireNames: Record<string, string> = { disk: "Disk", ram: "RAM to CPU", link: "Link to the device" };

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
    private readonly wires = h("div", { class: "wires" });
    private readonly lanes = h("div", { class: "lanes" });
    private readonly sessions = h("div");
    private readonly log = h("pre", { class: "log", tabindex: 0, "aria-label": "Log of the server" });
    private readonly whatIf = new WhatIf();
    private readonly series = {
        speed: new Series("Tokens per second", digits),
        hits: new Series("Experts found", share, 1),
        disk: new Series("Disk bytes per token", bytes),
        link: new Series("Link bytes per token", bytes),
    };
    private stops: (() => void)[] = [];
    private readonly fastest: Record<string, number> = {}; // that each wire was seen, in bytes per second
    private planned = "";
    private lines: LogLine[] = [];
    private asked = 0;

    constructor() {
        this.element = h(
            "div",
            { class: "data-view" },
            h("div", { class: "data-head" }, h("h1", {}, "Machine"), this.head),
            h(
                "div",
                { class: "cards" },
                card("plan-title", "Plan", this.plan),
                card("tokens-title", "Tokens", h("div", { class: "all-series" }, ...Object.values(this.series).map((x) => x.element))),
                card("wires-title", "Wires", this.wires),
                card("lanes-title", "Time of a layer", this.lanes),
                this.whatIf.element,
                half(card("sessions-title", "Sessions and kept prefixes", this.sessions)),
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
    }

    private onStatus(s: Status): void {
        const m = s.models.find((x) => x.state === "loaded");
        if (!m) {
            this.head.textContent = "No model is loaded. Ask something, and one will be.";
            return;
        }
        this.head.textContent = `Moraine ${s.version}: ${m.id} (${m.architecture}), ${m.tiers?.mode}; ${plural(m.engine?.busy ?? 0, "answer")} of ${m.engine?.parallel} at once, ${m.engine?.queued} waiting.`;
        if (this.planned !== m.id) {
            this.planned = m.id;
            void this.showPlan(m);
        }
        this.showWires(m);
        this.showTokens(m);
        this.showLanes(m);
        if (Date.now() - this.asked > 2000) {
            this.asked = Date.now();
            void this.showSessions(m);
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

    private showWires(m: LiveModel): void {
        fill(
            this.wires,
            ...(m.wires ?? []).map((w) => {
                const name = wireNames[w.name] ?? w.name;
                this.fastest[w.name] = Math.max(this.fastest[w.name] ?? 1, w.bytes_s);
                const full = w.probed_bytes_s || this.fastest[w.name];
                const level = h("span", { class: "lane-fill level" });
                level.style.width = `${Math.min(100, (100 * w.bytes_s) / full)}%`;
                const words = w.probed_bytes_s ? `${rate(w.bytes_s)} of ${rate(w.probed_bytes_s)} probed` : `${rate(w.bytes_s)}, not probed`;
                return h("div", { class: "wire" }, h("span", {}, name), h("span", { class: "quiet" }, words), h("div", { class: "lane-track", role: "meter", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": full, "aria-valuenow": Math.min(full, w.bytes_s), "aria-valuetext": words }, level), h("span", { class: "quiet" }, `${bytes(w.bytes)} so far`));
            }),
        );
    }

    private showTokens(m: LiveModel): void {
        const now = m.now;
        if (now) {
            this.series.speed.add(now.predicted_tokens_s);
            this.series.hits.add(now.experts_per_token > 0 ? now.hits_per_token / now.experts_per_token : 0);
            this.series.disk.add(now.disk_bytes_per_token);
            this.series.link.add(now.link_bytes_per_token);
            this.series.link.element.hidden = !m.device;
        }
    }

    private showLanes(m: LiveModel): void {
        const l = m.device?.lanes;
        if (l && l.served > 0) {
            fill(this.lanes, ...laneBars(l), h("p", { class: "quiet" }, `Half of the layers take at most ${seconds(m.device!.layer_p50_s)}, 99 of 100 at most ${seconds(m.device!.layer_p99_s)}.`));
            return;
        }
        const g = m.tiers?.generation;
        const layers = (g?.passes ?? 0) * (m.layers ?? 1);
        fill(this.lanes, h("p", {}, layers > 0 ? `Waiting for the disk: ${seconds((g?.wait_s ?? 0) / layers)} of a layer, on average; ${share(g?.hit_rate ?? 0)} of the experts were in RAM.` : "Nothing has been generated yet."), h("p", { class: "quiet" }, "Without a device there is one lane, the CPU's. The profile has its time by layer."));
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
            h("p", {}, `${plural(e.kept_sessions, "prefix", "prefixes")} kept in ${bytes(e.kept_session_bytes)} of memory, ${count(e.disk_sessions)} in ${bytes(e.disk_session_bytes)} on disk. Of ${plural(e.prompt_tokens, "prompt token")} ${count(e.cached_tokens)} were there already.`),
            list.length > 0 &&
                h(
                    "table",
                    { class: "numbers" },
                    h("thead", {}, h("tr", {}, ...["Session", "Tokens", "Bytes", "Where", ""].map((t) => h("th", { scope: "col" }, t || h("span", { class: "offscreen" }, "Actions"))))),
                    h("tbody", {}, ...list.slice(0, 12).map((x) => h("tr", {}, h("th", { scope: "row" }, x.id), h("td", {}, count(x.tokens)), h("td", {}, x.bytes === undefined ? "–" : bytes(x.bytes)), h("td", {}, x.where.join(", ")), h("td", {}, iconButton("trash", `Forget ${x.id}`, () => void this.forget(m, x.id)))))),
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

/** Seconds of one layer by who works or waits. */
function laneBars(l: Lanes): HTMLElement[] {
    const lanes: [string, number, string][] = [
        ["Device, its own part", l.core_s, "vram"],
        ["Host's turn", l.turn_s, "disk"],
        ["CPU lane", l.cpu_s, "ram"],
        ["Fetch lane", l.fetch_s, "crossing"],
        ["Device waits", l.device_wait_s, "rest"],
        ["Host waits", l.host_wait_s, "rest"],
    ];
    const most = Math.max(...lanes.map(([, s]) => s), 1e-9);
    return lanes.map(([name, s, kind]) => {
        const fill = h("span", { class: `lane-fill ${kind}` });
        fill.style.width = `${(100 * s) / most}%`;
        return h("div", { class: "lane" }, h("span", {}, name), h("span", { class: "lane-track" }, fill), h("span", { class: "quiet" }, seconds(s / l.served)));
    });
}
