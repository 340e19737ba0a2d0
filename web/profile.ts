// Profiles: which experts a model uses. Record one, save it, apply it, compare two.

import { announce, fill, h, write } from "./dom";
import { HeatMap } from "./heat_map";
import { loadModels, modelSelect, preferredModel } from "./models";
import { covered, type Profile, readProfile } from "./profile_data";
import { post, watch } from "./server";
import { saveFile } from "./sidebar";
import { count, plural, share, twoDigits } from "./units";

const BUDGETS = [0.1, 0.25, 0.5];

export class Profiles {
    readonly element: HTMLElement;
    private readonly head = h("p", { class: "lead" });
    private readonly said = h("p", { role: "status", class: "quiet" });
    private readonly bar = h("div", { class: "profile-bar" });
    private readonly map = new HeatMap("Uses of each expert");
    private readonly table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Time by layer" });
    private readonly choices = h("div", { class: "compare-bar" });
    private readonly compared = h("div", { class: "compared" });
    private readonly maps = { a: new HeatMap("First profile"), b: new HeatMap("Second profile"), difference: new HeatMap("Second minus first") };
    private readonly picker = h("input", { type: "file", accept: ".json,application/json", multiple: true, hidden: true, onchange: () => void this.take() });
    private readonly buttons = {
        reset: h("button", { class: "button", type: "button", onclick: () => void this.record(this.mode.value) }, "Reset counts"),
        save: h("button", { class: "button", type: "button", onclick: () => this.save() }, "Save to file"),
        keep: h("button", { class: "button", type: "button", onclick: () => this.keepLive() }, "Keep for comparison"),
        apply: h("button", { class: "button", type: "button", onclick: () => void this.apply(this.live, false) }, "Apply"),
        store: h("button", { class: "button", type: "button", onclick: () => void this.apply(this.live, true) }, "Apply and save on server"),
    };
    private readonly mode = h("select", { id: "mode", onchange: () => void this.record(this.mode.value) }, h("option", { value: "full" }, "counts and times"), h("option", { value: "update" }, "counts only"), h("option", { value: "off" }, "off"));
    private readonly reason = h("p", { class: "quiet" }); // why nothing can be applied
    private cached = false; // there is a hot cache that a profile can be applied to
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
            this.reason,
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
        this.mode.value = this.live?.mode || "full";
        fill(
            this.bar,
            modelSelect("profile-model", this.model, (id) => ((this.model = id), (this.live = null), void this.refresh())),
            h("label", { for: "mode" }, "Record"),
            this.mode,
            ...Object.values(this.buttons),
        );
    }

    private async refresh(): Promise<void> {
        try {
            const p = readProfile("current", await watch(this.path("moe-layer-perf")));
            if (this.live === null) {
                this.mode.value = p.mode;
                this.cached = await watch<{ active: boolean }>(this.path("moe-hot-cache")).then((c) => c.active, () => false);
            }
            this.live = p;
            const layers = p.layers.filter((l) => l.total > 0).length;
            const uses = p.layers.reduce((sum, l) => sum + l.total, 0);
            write(this.head, p.mode === "off" ? "Recording is off." : layers === 0 ? "Nothing recorded yet. Send a message." : `${plural(uses, "expert use")} recorded in ${plural(layers, "layer")} of ${plural(p.experts, "expert")}.`);
            this.enable(uses > 0);
            this.map.show(p);
            this.showTimes(p);
            this.showChoices();
        } catch (e) {
            this.head.textContent = e instanceof Error ? e.message : String(e);
        }
    }

    /** The main button is the one that there is something for. */
    private enable(recorded: boolean): void {
        const b = this.buttons, canApply = recorded && this.cached;
        b.save.disabled = b.keep.disabled = !recorded;
        b.apply.disabled = b.store.disabled = !canApply;
        b.apply.classList.toggle("primary", canApply);
        b.save.classList.toggle("primary", recorded && !canApply);
        write(this.reason, !this.cached ? "Nothing to apply a profile to: this model runs without an expert cache." : canApply ? "Apply fills the expert cache (VRAM, or RAM without a GPU) with the experts used most." : "");
    }

    private showTimes(p: Profile): void {
        const titles: [string, string][] = [
            ["Layer", ""],
            ["Uses", "experts used by tokens"],
            ["Hit rate", "share of the uses that found the expert in the fastest tier"],
            ["Experts, µs", "time of the layer's experts, per step"],
            ["Hits, µs", "time of experts in the fastest tier"],
            ["Misses, µs", "time of the other experts"],
            ["Waiting, µs", "time that the faster of the two waited for the slower one"],
        ];
        if (this.table.childElementCount === 0) {
            fill(this.table, h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, ...titles.map(([name]) => h("th", { scope: "col" }, name)))), h("tbody")), h("ul", { class: "explained" }, ...titles.flatMap(([name, text]) => (text ? [h("li", {}, `${name}: ${text}`)] : []))));
        }
        fill(this.table.querySelector("tbody")!, ...p.layers.map((l) => h("tr", {}, h("th", { scope: "row" }, l.layer), ...[count(l.total), share(l.hotShare), ...[l.microseconds, l.hotMicroseconds, l.coldMicroseconds, l.waitMicroseconds].map(twoDigits)].map((t) => h("td", {}, t)))));
    }

    // ---- Record, save, apply

    private async record(mode: string): Promise<void> {
        await this.attempt(async () => {
            await post(this.path("moe-layer-perf"), { mode });
            await this.refresh();
            return mode === "off" ? "Recording stopped." : "Counts were reset.";
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
            return (r.active ? `Applied: ${count(r.exchanged)} of ${plural(r.candidates, "candidate")} moved into the expert cache, in ${plural(r.layers_changed, "layer")}; it holds ${plural(r.hot_experts, "expert")}.` : "Accepted, but this model has no expert cache to fill.") + saved;
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
        announce(`${p.name} added to the comparison`);
    }

    private async take(): Promise<void> {
        for (const file of this.picker.files ?? []) {
            await this.attempt(async () => {
                this.add(readProfile(file.name, JSON.parse(await file.text())));
                return `${file.name} loaded.`;
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
            return; // not while somebody is choosing
        }
        const select = (id: string, value: string): HTMLSelectElement => {
            const s = h("select", { id, onchange: () => this.compare(all, Number(a.value), Number(b.value)) }, ...all.map((p, i) => h("option", { value: i }, p.name)));
            s.value = value;
            return s;
        };
        const a = select("compare-a", chosen[0]), b = select("compare-b", chosen[1]);
        fill(this.choices, h("label", { for: "compare-a" }, "First"), a, h("label", { for: "compare-b" }, "Second"), b, h("button", { class: "button", type: "button", onclick: () => this.picker.click() }, "Open file"), this.kept.length > 0 && h("button", { class: "button", type: "button", onclick: () => void this.apply(all[Number(b.value)], false) }, "Apply second"));
        this.compare(all, Number(a.value), Number(b.value));
    }

    private compare(all: Profile[], a: number, b: number): void {
        const first = all[a], second = all[b];
        if (!first || !second || a === b) {
            fill(this.compared, h("p", { class: "quiet" }, "Keep the current profile or open a file to compare two profiles."));
            return;
        }
        if (first.experts !== second.experts) {
            fill(this.compared, h("p", { class: "fault" }, "These profiles are of different models."));
            return;
        }
        this.maps.a.show(first);
        this.maps.b.show(second);
        this.maps.difference.show(second, first);
        const lines = BUDGETS.map((x) => h("li", {}, `A cache for ${share(x)} of the experts, filled by “${first.name}”, would have a hit rate of ${share(covered(first, second, x))} in “${second.name}”; filled by “${second.name}” itself, ${share(covered(second, second, x))}.`));
        if (this.compared.firstElementChild?.className !== "pair") {
            fill(this.compared, h("div", { class: "pair" }, h("div", {}, h("h3", {}, "First"), this.maps.a.element), h("div", {}, h("h3", {}, "Second"), this.maps.b.element)), h("h3", {}, "Difference"), this.maps.difference.element, h("ul", { class: "cover" }));
        }
        fill(this.compared.querySelector(".cover")!, ...lines);
    }
}
