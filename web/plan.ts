// A plan: what `moraine plan --json` says, and the bars that show it.

import { type Child, h } from "./dom";
import { bytes, digits, share } from "./units";

export interface Plan {
    model: string;
    parallel: number;
    mode: string;
    ceiling_bytes: number;
    ceiling: string;
    available_bytes: number;
    used_bytes: number;
    least_bytes: number;
    whole_bytes: number;
    ram_bytes: Record<string, number>;
    disk_bytes: Record<string, number>;
    context: number;
    batch: number;
    token: { ram_bytes: number; disk_bytes: number; hit_rate: number };
    tokens_per_second: number;
    rates: { measured: boolean };
    device: {
        name: string;
        ceiling_bytes: number;
        used_bytes: number;
        least_bytes: number;
        whole_bytes: number;
        bytes: Record<string, number>;
        token: { link_bytes: number; hit_rate: number };
    } | null;
    why_no_device: string | null;
}

// In the order in which they are stacked.
const parts: [string, string][] = [
    ["core", "core"],
    ["layers", "streamed layers"],
    ["vectors", "vectors"],
    ["embedding", "embedding"],
    ["experts", "experts"],
    ["kv", "KV cache"],
    ["work", "working memory"],
    ["staging", "staging"],
    ["layer_buffers", "layer buffers"],
    ["other", "program"],
];

function bar(title: string, amounts: Record<string, number>, ceiling: number, scale: number): HTMLElement {
    const used = Object.values(amounts).reduce((a, b) => a + b, 0);
    const row = h("div", { class: "bar", role: "img", "aria-label": `${title}: ${parts.filter(([k]) => amounts[k]).map(([k, name]) => `${name} ${bytes(amounts[k])}`).join(", ") || "nothing"}` });
    for (const [key, name] of parts) {
        if (amounts[key]) {
            const piece = h("span", { class: `piece piece-${key}`, title: `${name}: ${bytes(amounts[key])}` });
            piece.style.flexGrow = String(amounts[key]);
            row.append(piece);
        }
    }
    const rest = h("span", { class: "piece rest", title: "free under the ceiling" });
    rest.style.flexGrow = String(Math.max(0, Math.max(ceiling, used) - used));
    row.append(rest);
    row.style.width = `${Math.max(2, (100 * Math.max(ceiling, used)) / scale)}%`;
    return h("div", { class: "bar-row" }, h("div", { class: "bar-title" }, h("b", {}, title), h("span", {}, ceiling ? `${bytes(used)} of ${bytes(ceiling)}` : bytes(used))), h("div", { class: "bar-track" }, row));
}

/** A bar for each tier, all on one scale. */
export function planBars(p: Plan): Child[] {
    const disk = Object.values(p.disk_bytes).reduce((a, b) => a + b, 0);
    const scale = Math.max(p.ceiling_bytes > 8 * p.used_bytes ? p.used_bytes : p.ceiling_bytes, disk, p.device?.ceiling_bytes ?? 0, 1);
    const ceiling = Math.min(p.ceiling_bytes, scale);
    const shown = parts.filter(([k]) => p.ram_bytes[k] || p.disk_bytes[k] || p.device?.bytes[k]);
    return [
        p.device && bar(`VRAM, ${p.device.name}`, p.device.bytes, p.device.ceiling_bytes, scale),
        bar("RAM", p.ram_bytes, ceiling, scale),
        bar("Disk", p.disk_bytes, 0, scale),
        h("ul", { class: "legend" }, ...shown.map(([key, name]) => h("li", {}, h("span", { class: `swatch piece-${key}` }), name))),
    ];
}

/** The speed that is expected, and of what. */
export function planWords(p: Plan): Child[] {
    const hits = p.device ? p.device.token.hit_rate : p.token.hit_rate;
    const read = [`${bytes(p.token.ram_bytes)} from RAM`, p.token.disk_bytes > 0 && `${bytes(p.token.disk_bytes)} from disk`, p.device && p.device.token.link_bytes > 0 && `${bytes(p.device.token.link_bytes)} over the link`].filter(Boolean);
    return [
        h("p", { class: "figure" }, h("b", {}, digits(p.tokens_per_second)), " tokens/s expected"),
        h("p", { class: "quiet" }, `${share(hits)} of experts found in ${p.device ? "VRAM" : "RAM"}; a token reads ${read.join(" and ")}. ${p.rates.measured ? "" : "The rates of this machine are guessed: moraine probe measures them."}`),
    ];
}
