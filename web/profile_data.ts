// Counts of experts by layer, as GET /moe-layer-perf gives them and files keep them.

export interface ProfileLayer {
    layer: number;
    counts: Float64Array; // by expert
    total: number;
    hotShare: number;
    microseconds: number; // of a call, all of its experts; 0: not measured
    hotMicroseconds: number;
    coldMicroseconds: number;
    waitMicroseconds: number;
}

export interface Profile {
    name: string;
    json: any; // as it came, to be given back
    mode: string;
    experts: number;
    calls: number;
    layers: ProfileLayer[];
}

function number(x: unknown): number {
    return typeof x === "number" && Number.isFinite(x) ? x : 0;
}

/** Reads what the server or a file says; an error says what is wrong with it. */
export function readProfile(name: string, json: any): Profile {
    if (typeof json !== "object" || json === null || !String(json.schema ?? "").includes("moe_layer") || !Array.isArray(json.layers)) {
        throw new Error("this is not an expert profile");
    }
    const experts = Math.min(4096, number(json.n_expert));
    const layers = json.layers.map((l: any): ProfileLayer => {
        const counts = new Float64Array(experts);
        for (const pair of Array.isArray(l.experts) ? l.experts : []) {
            if (pair[0] >= 0 && pair[0] < experts) {
                counts[pair[0]] += number(pair[1]);
            }
        }
        return {
            layer: number(l.layer),
            counts,
            total: counts.reduce((a, b) => a + b, 0),
            hotShare: number(l.hot_slot_ratio),
            microseconds: number(l.total_moe_time_per_call_us),
            hotMicroseconds: number(l.parallel_hot_lane_wall_time_per_call_us),
            coldMicroseconds: number(l.parallel_cold_lane_wall_time_per_call_us),
            waitMicroseconds: number(l.parallel_join_wait_time_per_call_us),
        };
    });
    return { name, json, mode: String(json.mode ?? ""), experts, calls: number(json.summary?.layer_calls), layers };
}

/** The share of a layer's choices that fell on an expert. */
export function shareOf(l: ProfileLayer | undefined, expert: number): number {
    return l && l.total > 0 ? l.counts[expert] / l.total : 0;
}

/** How much of b's choices the experts would serve that a uses most, when a part of each layer (`budget`) has a place. */
export function covered(a: Profile, b: Profile, budget: number): number {
    let served = 0, all = 0;
    for (const layer of b.layers) {
        const other = a.layers.find((x) => x.layer === layer.layer);
        const places = Math.round(budget * b.experts);
        const best = other ? [...other.counts.keys()].sort((x, y) => other.counts[y] - other.counts[x]).slice(0, places) : [];
        served += best.reduce((sum, e) => sum + (layer.counts[e] ?? 0), 0);
        all += layer.total;
    }
    return all > 0 ? served / all : 0;
}
