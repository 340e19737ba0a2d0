// How the server is, as it tells by itself, at most four times a second. Nothing is asked while no view listens or the page
// is hidden.

import { events, send } from "./server";

export interface Phase {
    passes: number;
    experts: number;
    hits: number;
    hit_rate: number;
    disk_bytes: number;
    wait_s: number;
}

export interface LiveModel {
    id: string;
    state: string;
    context: number;
    parallel: number;
    file_bytes: number;
    load_share?: number;
    architecture?: string;
    layers?: number;
    experts?: number;
    experts_used?: number;
    bytes_per_token?: number;
    now?: { prompt_tokens_s: number; predicted_tokens_s: number };
    tiers?: {
        mode: string;
        policy: string;
        ceiling_bytes: number;
        planned_bytes: number;
        expert_bytes: number;
        slot_bytes: number;
        slots: number;
        filled: number;
        prompt: Phase;
        generation: Phase;
        disk_reads: number;
        disk_bytes: number;
        disk_busy_s: number;
        disk_probed_bytes_s: number;
    };
    device?: {
        name: string;
        lost: boolean;
        limit_bytes: number;
        peak_bytes: number;
        slots: number;
        filled: number;
        slot_bytes: number;
        experts: number;
        hits: number;
        by_cpu: number;
        fetched: number;
        fetched_bytes: number;
        cpu_bytes: number;
    } | null;
    engine?: {
        parallel: number;
        busy: number;
        queued: number;
        context: number;
        done: number;
        steps: number;
        prompt_tokens: number;
        cached_tokens: number;
        predicted_tokens: number;
        kept_sessions: number;
        kept_session_bytes: number;
        disk_sessions: number;
        disk_session_bytes: number;
        jobs: { job: number; state: string; prompt_tokens: number; cached_tokens: number; prompt_done: number; answer_tokens: number }[];
    };
}

export interface Status {
    version: string;
    models: LiveModel[];
    http: { connections: number; busy: number; requests: number };
}

type Listener = (status: Status) => void;
const listeners = new Set<Listener>();
let last: Status | null = null;
let stream: AbortController | null = null;

/** Calls back with every status until the returned function is called. */
export function listen(listener: Listener): () => void {
    listeners.add(listener);
    if (last) {
        listener(last);
    }
    adjust();
    return () => {
        listeners.delete(listener);
        adjust();
    };
}

document.addEventListener("visibilitychange", adjust);

function adjust(): void {
    const wanted = listeners.size > 0 && !document.hidden;
    if (wanted && !stream) {
        stream = new AbortController();
        void follow(stream.signal);
    } else if (!wanted && stream) {
        stream.abort();
        stream = null;
    }
}

/** Listens, and comes back when the server was away. */
async function follow(signal: AbortSignal): Promise<void> {
    let pause = 500;
    while (!signal.aborted) {
        try {
            for await (const text of events(await send("v1/moraine/events", { signal }))) {
                pause = 500;
                last = JSON.parse(text) as Status;
                document.documentElement.classList.remove("away");
                listeners.forEach((listener) => listener(last!));
            }
        } catch {
            if (signal.aborted) {
                return;
            }
        }
        document.documentElement.classList.add("away");
        await new Promise((resolve) => setTimeout(resolve, pause));
        pause = Math.min(2 * pause, 10_000);
    }
}
