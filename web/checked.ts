// Conversations that come from outside, a file or a database that others wrote: known fields of the right types are copied.

import type { Attachment, Conversation, Cost, Message, Picture, ToolCall } from "./conversation";
import { noSettings } from "./conversation";

const ROLES = ["user", "assistant", "tool"] as const;
const ENDS = ["stop", "length", "tool_calls", "stopped", "error"] as const;

function string(x: unknown): string | undefined {
    return typeof x === "string" ? x : undefined;
}

function number(x: unknown): number | undefined {
    return typeof x === "number" && Number.isFinite(x) ? x : undefined;
}

/** Milliseconds that a Date can be made of. */
function time(x: unknown): number | undefined {
    return typeof x === "number" && Math.abs(x) <= 8.64e15 ? x : undefined;
}

function oneOf<T>(list: readonly T[], x: unknown): T | undefined {
    return list.find((y) => y === x);
}

/** Those of the list that have these fields, all of them texts. */
function records<T>(x: unknown, ...names: (keyof T & string)[]): T[] | undefined {
    const good = Array.isArray(x) ? x.filter((value) => names.every((name) => typeof value?.[name] === "string")) : [];
    return good.length > 0 ? good.map((value) => Object.fromEntries(names.map((name) => [name, value[name]])) as T) : undefined;
}

/** Those that are in the file itself: what is elsewhere is not fetched. */
function pictures(x: unknown): Picture[] | undefined {
    const good = records<Picture>(x, "name", "url")?.filter((p) => /^data:image\/[a-z]+;base64,[A-Za-z0-9+/]+=*$/.test(p.url));
    return good?.length ? good : undefined;
}

function cost(x: any): Cost | undefined {
    const names = ["promptTokens", "cachedTokens", "tokens", "rate", "firstSeconds"] as const;
    return x && typeof x === "object" ? (Object.fromEntries(names.map((name) => [name, number(x[name]) ?? 0])) as unknown as Cost) : undefined;
}

function message(m: any): Message {
    const role = oneOf(ROLES, m?.role);
    if (typeof m?.id !== "string" || typeof m.text !== "string" || !role) {
        throw new Error("a message in the file is damaged");
    }
    const all: Message = {
        id: m.id,
        parent: string(m.parent) ?? null,
        role,
        text: m.text,
        created: time(m.created) ?? Date.now(),
        attachments: records<Attachment>(m.attachments, "name", "text"),
        pictures: pictures(m.pictures),
        thought: string(m.thought),
        thoughtSeconds: number(m.thoughtSeconds),
        calls: records<ToolCall>(m.calls, "id", "name", "arguments"),
        callId: string(m.callId),
        model: string(m.model),
        answerId: string(m.answerId),
        cost: cost(m.cost),
        ended: oneOf(ENDS, m.ended),
        error: string(m.error),
    };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as unknown as Message;
}

/** A ring of parents would never end. */
function refuseRings(messages: Conversation["messages"]): void {
    const good = new Set<string>();
    for (const start of Object.values(messages)) {
        const seen = new Set<string>();
        for (let id: string | null = start.id; id !== null && !good.has(id); id = messages[id].parent) {
            if (seen.has(id)) {
                throw new Error("messages in the file form a cycle");
            }
            seen.add(id);
        }
        seen.forEach((id) => good.add(id));
    }
}

/** The conversation, or an error that says why it is none. */
export function checked(value: any): Conversation {
    if (typeof value?.id !== "string" || typeof value.messages !== "object" || value.messages === null) {
        throw new Error("a conversation in the file is damaged");
    }
    const found = new Map(Object.values(value.messages).map(message).map((m) => [m.id, m]));
    const messages: Conversation["messages"] = Object.fromEntries(found);
    for (const m of found.values()) {
        m.parent = m.parent !== null && found.has(m.parent) ? m.parent : null;
    }
    refuseRings(messages);
    const newest = [...found.values()].reduce<Message | null>((a, b) => (a && a.created > b.created ? a : b), null);
    const settings = noSettings();
    for (const name of Object.keys(settings) as (keyof typeof settings)[]) {
        settings[name] = string(value.settings?.[name]) ?? "";
    }
    return {
        id: value.id,
        title: string(value.title) ?? "",
        created: time(value.created) ?? Date.now(),
        changed: time(value.changed) ?? 0,
        model: string(value.model) ?? "",
        settings,
        messages,
        leaf: found.has(value.leaf) ? value.leaf : (newest?.id ?? null),
    };
}
