// Profiles: which experts a model uses. Learn one, keep it, apply it, hold two against each other.

import { announce, fill, h } from "./dom";
import { HeatMap } from "./heat_map";
import { loadModels, modelSelect, preferredModel } from "./models";
import { covered, type Profile, readProfile } from "./profile_data";
import { post, watch } from "./server";
import { saveFile } from "./sidebar";
import { count, digits, share } from "./units";

const BUDGETS = [0.1, 0.25, 0.5];

export class Profiles {
    readonly element: HTMLElement;
    private readonly head = h("p", { class: "lead" });
    private readonly said = h("p", { role: "status", class: "quiet" });
    private readonly bar = h("div", { class: "profile-bar" });
    private readonly map = new HeatMap("How often each expert was chosen");
    private readonly table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "times by layer" });
    private readonly choices = h("div", { class: "compare-bar" });
    private readonly compared = h("div", { class: "compared" });
    private readonly maps = { a: new HeatMap("First profile"), b: new HeatMap("Second profile"), difference: new HeatMap("Difference") };
    private readonly picker = h("input", { type: "file", accept: ".json,application/json", multiple: true, hidden: true, onchange: () => void this.take() });
    private model = "";
    private live: Profile | null = null;
    private kept: Profile[] = [];
    private timer = 0;

    constructor() {
        this.element = h(
            "div",
            { class: "data-view" },
            h("div", { class: "data-head" }, h("h1", {}, "Profile"), this.head),
            this.bar,
            this.said,
            this.map.element,
            h("details", { class: "as-table" }, h("summary", {}, "Time by layer"), this.table),
            h("section", { class: "compare", "aria-labelledby": "compare" }, h("h2", { id: "compare" }, "Compare"), this.choices, this.picker, this.compared),
        );
    }

    show(): void {
        void this.begin();
        this.timer = window.setInterval(() => void this.refresh(), 2000);
    }

    hide(): void {
        clearInterval(this.timer);
    }

    private async begin(): Promise<void> {
        await loadModels().catch(() => []);
        this.model = this.model || preferredModel();
        this.buildBar();
        await this.refresh();
    }

    private path(what: string): string {
        return `${what}?model=${encodeURIComponent(this.model)}`;
    }

    private buildBar(): void {
        const mode = h("select", { id: "mode", onchange: () => void this.learn(mode.value) }, h("option", { value: "full" }, "counts and times"), h("option", { value: "update" }, "counts"), h("option", { value: "off" }, "nothing"));
        mode.value = this.live?.mode || "full";
        fill(
            this.bar,
            modelSelect("profile-model", this.model, (id) => ((this.model = id), (this.live = null), void this.refresh())),
            h("label", { for: "mode" }, "Learn"),
            mode,
            h("button", { class: "button", type: "button", onclick: () => void this.learn(mode.value) }, "Begin anew"),
            h("button", { class: "button", type: "button", onclick: () => this.save() }, "Save as a file"),
            h("button", { class: "button", type: "button", onclick: () => this.keepLive() }, "Keep for comparing"),
            h("button", { class: "button primary", type: "button", onclick: () => void this.apply(this.live, false) }, "Apply"),
            h("button", { class: "button", type: "button", onclick: () => void this.apply(this.live, true) }, "Apply and save on the server"),
        );
    }

    private async refresh(): Promise<void> {
        try {
            const p = readProfile("now", await watch(this.path("moe-layer-perf")));
            const first = this.live === null;
            this.live = p;
            if (first) {
                const mode = this.bar.querySelector<HTMLSelectElement>("#mode");
                if (mode) {
                    mode.value = p.mode;
                }
            }
            const layers = p.layers.filter((l) => l.total > 0).length;
            this.head.textContent = p.mode === "off" ? "Nothing is counted at the moment." : layers === 0 ? "Nothing has been counted yet. Ask something." : `${count(p.layers.reduce((sum, l) => sum + l.total, 0))} choices counted in ${count(layers)} layers of ${count(p.experts)} experts. What is applied decides which experts have a place in the hot cache.`;
            this.map.show(p);
            this.showTimes(p);
            this.showChoices();
        } catch (e) {
            this.head.textContent = e instanceof Error ? e.message : String(e);
        }
    }

    private showTimes(p: Profile): void {
        fill(
            this.table,
            h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, ...["Layer", "Choices", "Found", "Experts µs", "Hot µs", "Cold µs", "Wait µs"].map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, ...p.layers.map((l) => h("tr", {}, h("th", { scope: "row" }, l.layer), ...[count(l.total), share(l.hotShare), digits(l.microseconds), digits(l.hotMicroseconds), digits(l.coldMicroseconds), digits(l.waitMicroseconds)].map((t) => h("td", {}, t)))))),
        );
    }

    // ---- Learn, save, apply

    private async learn(mode: string): Promise<void> {
        await this.attempt(async () => {
            await post(this.path("moe-layer-perf"), { mode });
            await this.refresh();
            return mode === "off" ? "Nothing is counted any more." : "Counting begins anew.";
        });
    }

    private save(): void {
        if (this.live) {
            saveFile(`${this.model}-profile.json`, "application/json", JSON.stringify(this.live.json, null, 1));
        }
    }

    private async apply(p: Profile | null, keep: boolean): Promise<void> {
        await this.attempt(async () => {
            const r = await post<any>(this.path("moe-hot-cache"), { ...p?.json, ...(keep ? { save_to_disk: true } : {}) });
            const saved = r.saved_to_disk ? ` Saved as ${r.path}.` : r.save_error ? ` Not saved: ${r.save_error}.` : "";
            return (r.active ? `Applied: ${count(r.exchanged)} of ${count(r.candidates)} experts exchanged in ${count(r.layers_changed)} layers; ${count(r.hot_experts)} are hot.` : "Taken, but this server has no hot cache: --moe-hot-cache gives it one.") + saved;
        });
    }

    private async attempt(what: () => Promise<string>): Promise<void> {
        this.said.classList.remove("fault");
        try {
            this.said.textContent = await what();
        } catch (e) {
            this.said.classList.add("fault");
            this.said.textContent = e instanceof Error ? e.message : String(e);
        }
    }

    // ---- Compare

    private keepLive(): void {
        if (this.live) {
            this.add({ ...this.live, name: `${this.model} at ${new Date().toLocaleTimeString()}` });
        }
    }

    private add(p: Profile): void {
        this.kept = [...this.kept, p].slice(-12);
        this.showChoices(true);
        announce(`${p.name} can be compared`);
    }

    private async take(): Promise<void> {
        for (const file of this.picker.files ?? []) {
            await this.attempt(async () => {
                this.add(readProfile(file.name, JSON.parse(await file.text())));
                return `${file.name} was read.`;
            });
        }
        this.picker.value = "";
    }

    private showChoices(fresh = false): void {
        const all = [...(this.live ? [this.live] : []), ...this.kept];
        const before = this.choices.querySelectorAll("select");
        const chosen = [before[0]?.value ?? "0", fresh ? String(all.length - 1) : (before[1]?.value ?? "0")];
        if (this.choices.contains(document.activeElement) && !fresh) {
            this.compare(all, Number(chosen[0]), Number(chosen[1]));
            return; // somebody is choosing
        }
        const select = (id: string, value: string): HTMLSelectElement => {
            const s = h("select", { id, onchange: () => this.compare(all, Number(a.value), Number(b.value)) }, ...all.map((p, i) => h("option", { value: i }, p.name)));
            s.value = value;
            return s;
        };
        const a = select("compare-a", chosen[0]), b = select("compare-b", chosen[1]);
        fill(this.choices, h("label", { for: "compare-a" }, "First"), a, h("label", { for: "compare-b" }, "Second"), b, h("button", { class: "button", type: "button", onclick: () => this.picker.click() }, "Read a file"), this.kept.length > 0 && h("button", { class: "button", type: "button", onclick: () => void this.apply(all[Number(b.value)], false) }, "Apply the second"));
        this.compare(all, Number(a.value), Number(b.value));
    }

    private compare(all: Profile[], a: number, b: number): void {
        const first = all[a], second = all[b];
        if (!first || !second || a === b) {
            fill(this.compared, h("p", { class: "quiet" }, "Keep what is counted now, or read a file, and hold it against another."));
            return;
        }
        if (first.experts !== second.experts) {
            fill(this.compared, h("p", { class: "fault" }, "These are profiles of different models."));
            return;
        }
        this.maps.a.show(first);
        this.maps.b.show(second);
        this.maps.difference.show(second, first);
        const lines = BUDGETS.map((x) => h("li", {}, `With a place for ${share(x)} of the experts, those that ${first.name} prefers would serve ${share(covered(first, second, x))} of the choices in ${second.name}; its own ${share(covered(second, second, x))}.`));
        if (this.compared.firstElementChild?.className !== "pair") {
            fill(this.compared, h("div", { class: "pair" }, h("div", {}, h("h3", {}, "First"), this.maps.a.element), h("div", {}, h("h3", {}, "Second"), this.maps.b.element)), h("h3", {}, "Second against first"), this.maps.difference.element, h("ul", { class: "cover" }));
        }
        fill(this.compared.querySelector(".cover")!, ...lines);
    }
}
