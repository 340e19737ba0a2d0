// An answer on its way: what is asked of the server, and its events as they change a message.

import type { Conversation, Message } from "./conversation";
import { path, wireMessages } from "./conversation";
import { events, send } from "./server";

/** How far the prompt is. */
export interface Progress {
    done: number;
    total: number;
    secondsLeft: number | null;
}

export interface Listener {
    changed(): void;
    progress(p: Progress | null): void;
}

/** The settings that were given; those that are empty are left to the server. */
function parameters(c: Conversation): Record<string, unknown> {
    const out: Record<string, unknown> = {};
    for (const name of ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"] as const) {
        const value = c.settings[name].trim();
        if (value !== "" && Number.isFinite(Number(value))) {
            out[name] = Number(value);
        }
    }
    if (c.settings.reasoning) {
        out.reasoning_effort = c.settings.reasoning;
    }
    if (c.settings.tools.trim()) {
        out.tools = JSON.parse(c.settings.tools);
    }
    return out;
}

function progressOf(p: { total: number; cache: number; processed: number; time_ms: number }): Progress {
    const computed = p.processed - p.cache;
    return { done: p.processed, total: p.total, secondsLeft: computed > 0 && p.time_ms > 200 ? ((p.total - p.processed) * p.time_ms) / computed / 1000 : null };
}

function addCalls(m: Message, deltas: any[]): void {
    m.calls = m.calls ?? [];
    for (const delta of deltas) {
        const call = (m.calls[delta.index] = m.calls[delta.index] ?? { id: "", name: "", arguments: "" });
        call.id = delta.id ?? call.id;
        call.name = delta.function?.name ?? call.name;
        call.arguments += delta.function?.arguments ?? "";
    }
}

/** Streams the answer to everything before `m` into it. Text that is there already is its beginning. Never throws: what went
 *  wrong is in the message. */
export async function answer(c: Conversation, m: Message, listener: Listener, stop: AbortSignal): Promise<void> {
    const all = path(c);
    const before = all.slice(0, all.findIndex((x) => x.id === m.id));
    const begun = performance.now();
    let thinking = 0;
    m.ended = undefined;
    m.error = undefined;
    try {
        const body = {
            ...parameters(c),
            model: c.model || undefined,
            messages: wireMessages(c, m.text || m.thought ? [...before, m] : before),
            stream: true,
            stream_options: { include_usage: true },
            return_progress: true,
            trace: true, // so that its routing can be shown
        };
        const response = await send("v1/chat/completions", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: stop });
        for await (const { data: text } of events(response)) {
            if (text === "[DONE]") {
                break;
            }
            const event = JSON.parse(text);
            if (event.error) {
                throw new Error(event.error.message);
            }
            m.model = event.model ?? m.model;
            m.answerId = event.id ?? m.answerId;
            if (event.prompt_progress) {
                listener.progress(progressOf(event.prompt_progress));
                continue;
            }
            const choice = event.choices?.[0];
            const delta = choice?.delta ?? {};
            if (delta.reasoning_content) {
                thinking = thinking || performance.now();
                m.thought = (m.thought ?? "") + delta.reasoning_content;
            }
            if ((delta.content || delta.tool_calls) && thinking && m.thoughtSeconds === undefined) {
                m.thoughtSeconds = (performance.now() - thinking) / 1000;
            }
            m.text += delta.content ?? "";
            if (delta.tool_calls) {
                addCalls(m, delta.tool_calls);
            }
            if (choice?.finish_reason) {
                m.ended = choice.finish_reason;
            }
            if (delta.content || delta.reasoning_content || delta.tool_calls) {
                m.cost = m.cost ?? { promptTokens: 0, cachedTokens: 0, tokens: 0, rate: 0, firstSeconds: (performance.now() - begun) / 1000 };
                listener.progress(null);
            }
            if (event.usage) {
                m.cost = { promptTokens: event.usage.prompt_tokens, cachedTokens: event.usage.prompt_tokens_details?.cached_tokens ?? 0, tokens: event.usage.completion_tokens, rate: event.timings?.predicted_per_second ?? 0, firstSeconds: m.cost?.firstSeconds ?? 0 };
            }
            listener.changed();
        }
        m.ended = m.ended ?? "stop";
    } catch (problem) {
        m.ended = stop.aborted ? "stopped" : "error";
        m.error = stop.aborted ? undefined : problem instanceof Error ? problem.message : String(problem);
    }
    listener.progress(null);
    listener.changed();
}
