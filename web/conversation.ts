// A conversation: a tree of messages. A way from the root to a leaf is what is shown; an edit or another try is a branch.

export interface Attachment {
    name: string;
    text: string;
}

/** A picture as the file has it, in a data URL. */
export interface Picture {
    name: string;
    url: string;
}

export interface ToolCall {
    id: string;
    name: string;
    arguments: string;
}

/** What an answer cost. */
export interface Cost {
    promptTokens: number;
    cachedTokens: number;
    tokens: number;
    rate: number;
    firstSeconds: number;
}

export interface Message {
    id: string;
    parent: string | null;
    role: "user" | "assistant" | "tool";
    text: string;
    created: number;
    attachments?: Attachment[];
    pictures?: Picture[];
    thought?: string;
    thoughtSeconds?: number;
    calls?: ToolCall[];
    callId?: string; // of a tool's result
    model?: string;
    answerId?: string; // as the server calls it
    cost?: Cost;
    ended?: "stop" | "length" | "tool_calls" | "stopped" | "error";
    error?: string;
}

/** What is empty is left to the server. */
export interface Settings {
    system: string;
    temperature: string;
    top_p: string;
    top_k: string;
    min_p: string;
    repeat_penalty: string;
    max_tokens: string;
    seed: string;
    reasoning: string;
    tools: string;
}

export interface Conversation {
    id: string;
    title: string;
    created: number;
    changed: number;
    model: string;
    settings: Settings;
    messages: Record<string, Message>;
    leaf: string | null;
}

export function freshId(): string {
    return Array.from(crypto.getRandomValues(new Uint8Array(10)), (b) => b.toString(36).padStart(2, "0")).join("");
}

export function noSettings(): Settings {
    return { system: "", temperature: "", top_p: "", top_k: "", min_p: "", repeat_penalty: "", max_tokens: "", seed: "", reasoning: "", tools: "" };
}

export function freshConversation(model: string, settings?: Settings): Conversation {
    const now = Date.now();
    return { id: freshId(), title: "", created: now, changed: now, model, settings: settings ?? noSettings(), messages: {}, leaf: null };
}

/** The messages that are shown, first to last. */
export function path(c: Conversation): Message[] {
    const list: Message[] = [];
    for (let id = c.leaf; id !== null && c.messages[id]; id = c.messages[id].parent) {
        list.push(c.messages[id]);
    }
    return list.reverse();
}

/** A message and its alternatives, oldest first. */
export function siblings(c: Conversation, m: Message): Message[] {
    return Object.values(c.messages)
        .filter((other) => other.parent === m.parent && other.role === m.role)
        .sort((a, b) => a.created - b.created);
}

/** Shows this message and what followed it last. */
export function choose(c: Conversation, m: Message): void {
    let leaf = m;
    for (;;) {
        const next = Object.values(c.messages).filter((other) => other.parent === leaf.id);
        if (next.length === 0) {
            break;
        }
        leaf = next.reduce((a, b) => (b.created >= a.created ? b : a));
    }
    c.leaf = leaf.id;
}

/** Adds a message after `parent`, which is then shown. */
export function add(c: Conversation, parent: string | null, message: Omit<Message, "id" | "parent" | "created">): Message {
    const newest = Math.max(0, ...Object.values(c.messages).map((m) => m.created));
    const m = { ...message, id: freshId(), parent, created: Math.max(Date.now(), newest + 1) };
    c.messages[m.id] = m;
    c.leaf = m.id;
    c.changed = Date.now();
    if (c.title === "" && m.role === "user") {
        c.title = titleOf(m);
    }
    return m;
}

function titleOf(m: Message): string {
    const line = (m.text.trim() || m.attachments?.[0]?.name || m.pictures?.[0]?.name || "").split("\n")[0];
    return line.length > 60 ? `${line.slice(0, 58).trimEnd()}…` : line;
}

/** A fence that no line of the text has. */
function fence(text: string): string {
    let marks = "```";
    while (text.includes(marks)) {
        marks += "`";
    }
    return marks;
}

/** What the model reads of a message of the user: files first. */
export function fullText(m: Message): string {
    const files = (m.attachments ?? []).map((a) => `${a.name}:\n${fence(a.text)}\n${a.text.replace(/\n$/, "")}\n${fence(a.text)}\n\n`);
    return files.join("") + m.text;
}

/** A message of the user as the server takes it: pictures first. */
function wireContent(m: Message): string | object[] {
    const text = fullText(m);
    const pictures = (m.pictures ?? []).map((p) => ({ type: "image_url", image_url: { url: p.url } }));
    return pictures.length === 0 ? text : [...pictures, ...(text ? [{ type: "text", text }] : [])];
}

/** The conversation as the server takes it. */
export function wireMessages(c: Conversation, upTo: Message[]): object[] {
    const list: object[] = c.settings.system.trim() ? [{ role: "system", content: c.settings.system }] : [];
    for (const m of upTo) {
        if (m.role === "user") {
            list.push({ role: "user", content: wireContent(m) });
        } else if (m.role === "tool") {
            list.push({ role: "tool", tool_call_id: m.callId, content: m.text });
        } else {
            const calls = m.calls?.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
            list.push({ role: "assistant", content: m.text, ...(m.thought ? { reasoning_content: m.thought } : {}), ...(calls?.length ? { tool_calls: calls } : {}) });
        }
    }
    return list;
}

/** For reading elsewhere. */
export function asMarkdown(c: Conversation): string {
    const parts = [`# ${c.title || "Conversation"}`, `${c.model}, ${new Date(c.created).toISOString()}`];
    if (c.settings.system) {
        parts.push(`## System\n\n${c.settings.system}`);
    }
    for (const m of path(c)) {
        const who = m.role === "user" ? "You" : m.role === "tool" ? "Tool" : m.model || "Model";
        const calls = (m.calls ?? []).map((call) => `\n\n\`\`\`json\n${call.name}(${call.arguments})\n\`\`\``).join("");
        const pictures = (m.pictures ?? []).map((p) => `(picture: ${p.name})\n\n`).join("");
        parts.push(`## ${who}\n\n${pictures}${fullText(m)}${calls}`);
    }
    return `${parts.join("\n\n")}\n`;
}
