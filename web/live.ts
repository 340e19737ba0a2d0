// How the server is, as it tells by itself, at most four times a second. Nothing is asked while no view listens or the page
// is hidden.

import type { LayerEvent } from "./expert_map";
import { events, send, ServerError } from "./server";

export interface Phase {
    passes: number;
    experts: number;
    hits: number;
    hit_rate: number;
    disk_bytes: number;
    wait_s: number;
}

/** Seconds over `served` layers. */
export interface Lanes {
    served: number;
    core_s: number;
    turn_s: number;
    cpu_s: number;
    fetch_s: number;
    hidden_s: number;
    host_wait_s: number;
    device_wait_s: number;
    region_s: number;
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
    made_for?: number;
    now?: { prompt_tokens_s: number; predicted_tokens_s: number; experts_per_token: number; hits_per_token: number; disk_bytes_per_token: number; link_bytes_per_token: number };
    wires?: { name: string; bytes: number; bytes_s: number; probed_bytes_s: number }[];
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
    /** null: nothing is guessed. */
    speculation?: { draft_max: number; drafted: number; accepted: number; tokens_per_step: number; gain: number } | null;
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
        layer_p50_s: number;
        layer_p99_s: number;
        lanes: Lanes;
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
        /* Those of others have the state and the tokens of the answer only. */
        jobs: { state: string; answer_tokens: number; job?: number; prompt_tokens?: number; cached_tokens?: number; prompt_done?: number }[];
    };
}

export interface Status {
    version: string;
    models: LiveModel[];
    http: { connections: number; busy: number; requests: number };
}

export interface LogLine {
    number: number;
    text: string;
}

type ExpertModels = { model: string; layers: LayerEvent[] }[];
type Listener<T> = (value: T) => void;

/** Those who listen to one kind of events. */
class Channel<T> {
    readonly listeners = new Set<Listener<T>>();

    /** Calls back until the returned function is called. */
    add(listener: Listener<T>): () => void {
        this.listeners.add(listener);
        adjust();
        return () => {
            this.listeners.delete(listener);
            adjust();
        };
    }

    tell(value: T): void {
        this.listeners.forEach((listener) => listener(value));
    }
}

const statuses = new Channel<Status>(), experts = new Channel<ExpertModels>(), logs = new Channel<LogLine[]>();
let last: Status | null = null;
let stream: AbortController | null = null;
let query = "";

export function listen(listener: Listener<Status>): () => void {
    if (last) {
        listener(last);
    }
    return statuses.add(listener);
}

export function listenExperts(listener: Listener<ExpertModels>): () => void {
    return experts.add(listener);
}

export function listenLog(listener: Listener<LogLine[]>): () => void {
    return logs.add(listener);
}

document.addEventListener("visibilitychange", adjust);

/** The stream carries what is listened to and no more. */
function adjust(): void {
    const some = statuses.listeners.size + experts.listeners.size + logs.listeners.size > 0;
    const wanted = some && !document.hidden ? `?experts=${Number(experts.listeners.size > 0)}&log=${Number(logs.listeners.size > 0)}` : "";
    if (wanted !== query) {
        query = wanted;
        stream?.abort();
        stream = null;
        if (wanted) {
            stream = new AbortController();
            void follow(wanted, stream.signal);
        }
    }
}

function take(kind: string, value: any): void {
    if (kind === "experts") {
        experts.tell(value.models);
    } else if (kind === "log") {
        logs.tell(value.lines);
    } else {
        last = value as Status;
        statuses.tell(last);
    }
}

/** Listens, and comes back when the server was away. */
async function follow(what: string, signal: AbortSignal): Promise<void> {
    let pause = 500;
    while (!signal.aborted) {
        let away = true;
        try {
            for await (const { kind, data } of events(await send(`v1/moraine/events${what}`, { signal }, true))) {
                pause = 500;
                document.documentElement.classList.remove("away");
                take(kind, JSON.parse(data));
            }
        } catch (e) {
            away = !(e instanceof ServerError && e.status === 401); // it is there, and wants a key
        }
        if (signal.aborted) {
            return;
        }
        document.documentElement.classList.toggle("away", away);
        await new Promise((resolve) => setTimeout(resolve, pause));
        pause = Math.min(2 * pause, 10_000);
    }
}
