// A plan: what `moraine plan --json` says, and the bars that show it.

import { type Child, h, term } from "./dom";
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
const parts: [string, string, string][] = [
    ["core", "attention and shared weights", "Weights that every token uses"],
    ["layers", "streamed layers", "Layers whose weights do not fit and are read from disk as they are needed"],
    ["vectors", "norms and biases", "Small vectors that stay in memory"],
    ["embedding", "embeddings", "The token embeddings and the output matrix"],
    ["experts", "experts", "Weights of the routed experts, of which a token uses a few"],
    ["kv", "KV cache", "Keys and values of the tokens in the context"],
    ["work", "compute buffers", "Activations and scratch space"],
    ["staging", "staging buffers", "Where bytes arrive that are being transferred"],
    ["layer_buffers", "layer buffers", "Where streamed layers are loaded"],
    ["other", "program", "Code, tokenizer, server and libraries"],
];

/** How wide free space is drawn, in widths of what is used: true up to seven, and growing slower from there. */
function freeWidth(used: number, ceiling: number): number {
    const free = Math.max(0, ceiling - used) / Math.max(used, 1);
    return free <= 7 ? free : 7 + Math.log2(free / 7);
}

/** As wide as the card: what is used, and what is free below the limit. */
function bar(title: string, amounts: Record<string, number>, ceiling: number): HTMLElement {
    const used = Object.values(amounts).reduce((a, b) => a + b, 0);
    const words = ceiling ? `${bytes(used)} of ${bytes(ceiling)}` : bytes(used);
    const row = h("div", { class: "bar", role: "img", "aria-label": `${title}, ${words}: ${parts.filter(([k]) => amounts[k]).map(([k, name]) => `${name} ${bytes(amounts[k])}`).join(", ") || "nothing"}` });
    for (const [key, name] of parts) {
        if (amounts[key]) {
            const piece = h("span", { class: `piece piece-${key}`, title: `${name}: ${bytes(amounts[key])}` });
            piece.style.flexGrow = String(amounts[key] / used);
            row.append(piece);
        }
    }
    if (ceiling > used) {
        const free = freeWidth(used, ceiling);
        const rest = h("span", { class: "piece free", title: `free: ${bytes(ceiling - used)}${free > 7 ? ", not to scale" : ""}` });
        rest.style.flexGrow = String(free);
        row.append(rest);
    }
    return h("div", { class: "bar-row" }, h("div", { class: "bar-title" }, h("b", {}, title), h("span", {}, words)), row);
}

/** A bar for each tier, and what the colours are. */
export function planBars(p: Plan): Child[] {
    const shown = parts.filter(([k]) => p.ram_bytes[k] || p.disk_bytes[k] || p.device?.bytes[k]);
    return [
        p.device && bar(`VRAM, ${p.device.name}`, p.device.bytes, p.device.ceiling_bytes),
        bar("RAM", p.ram_bytes, p.ceiling_bytes),
        Object.values(p.disk_bytes).some((n) => n > 0) && bar("On disk only", p.disk_bytes, 0),
        h("ul", { class: "legend" }, ...shown.map(([key, name, explanation]) => h("li", {}, h("span", { class: `swatch piece-${key}` }), term(name, explanation)))),
    ];
}

/** The speed that is expected, and why. */
export function planWords(p: Plan): Child[] {
    const hits = p.device ? p.device.token.hit_rate : p.token.hit_rate;
    const read = [p.token.ram_bytes > 0 && `${bytes(p.token.ram_bytes)} from RAM`, p.token.disk_bytes > 0 && `${bytes(p.token.disk_bytes)} from disk`, p.device && p.device.token.link_bytes > 0 && `${bytes(p.device.token.link_bytes)} over the GPU link`].filter(Boolean);
    return [
        h("p", { class: "figure" }, h("b", {}, digits(p.tokens_per_second)), " tokens/s expected"),
        h("p", { class: "quiet" }, `Expected hit rate in ${p.device ? "VRAM" : "RAM"}: ${share(hits)}. Each token reads ${read.join(" and ") || "VRAM only"}.${p.rates.measured ? "" : " This assumes typical hardware; run moraine probe to measure this machine."}`),
    ];
}
