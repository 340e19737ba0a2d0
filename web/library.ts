// The conversations of this browser, in its database; in memory alone where it has none (private windows of some).

import type { Conversation } from "./conversation";
import { fullText, noSettings } from "./conversation";

const STORE = "conversations";

function opened(): Promise<IDBDatabase | null> {
    return new Promise((resolve) => {
        try {
            const request = indexedDB.open("moraine", 1);
            request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => resolve(null);
        } catch {
            resolve(null);
        }
    });
}

function done(request: IDBRequest): Promise<unknown> {
    return new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });
}

export class Library {
    private database: IDBDatabase | null = null;
    private waiting = new Map<string, number>();
    readonly all = new Map<string, Conversation>();

    async open(): Promise<void> {
        this.database = await opened();
        const list = this.database ? await done(this.database.transaction(STORE).objectStore(STORE).getAll()) : [];
        for (const c of list as Conversation[]) {
            this.all.set(c.id, c);
        }
        addEventListener("pagehide", () => this.flush());
        document.addEventListener("visibilitychange", () => document.hidden && this.flush());
    }

    /** Newest first; with words: those in which all of them occur. */
    search(words: string): Conversation[] {
        const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
        const matches = (c: Conversation): boolean => {
            const text = [c.title, c.settings.system, ...Object.values(c.messages).map(fullText)].join("\n").toLowerCase();
            return wanted.every((word) => text.includes(word));
        };
        return [...this.all.values()].filter((c) => wanted.length === 0 || matches(c)).sort((a, b) => b.changed - a.changed);
    }

    /** Soon, so that a streaming answer is not written for every word. */
    save(c: Conversation): void {
        this.all.set(c.id, c);
        if (!this.waiting.has(c.id)) {
            this.waiting.set(
                c.id,
                window.setTimeout(() => this.write(c.id), 400),
            );
        }
    }

    private write(id: string): void {
        clearTimeout(this.waiting.get(id));
        this.waiting.delete(id);
        const c = this.all.get(id);
        if (this.database && c) {
            this.database.transaction(STORE, "readwrite").objectStore(STORE).put(c);
        }
    }

    flush(): void {
        for (const id of [...this.waiting.keys()]) {
            this.write(id);
        }
    }

    remove(id: string): void {
        clearTimeout(this.waiting.get(id));
        this.waiting.delete(id);
        this.all.delete(id);
        this.database?.transaction(STORE, "readwrite").objectStore(STORE).delete(id);
    }

    export(list: Conversation[]): string {
        return JSON.stringify({ format: "moraine-conversations", version: 1, exported: new Date().toISOString(), conversations: list }, null, 1);
    }

    /** Takes a file that export() wrote; how many conversations it had. What is no conversation is refused whole. */
    import(text: string): number {
        const file = JSON.parse(text);
        if (file?.format !== "moraine-conversations" || !Array.isArray(file.conversations)) {
            throw new Error("this is no file of exported conversations");
        }
        const list = file.conversations.map(checked);
        for (const c of list) {
            this.save(c);
        }
        return list.length;
    }
}

function checked(value: any): Conversation {
    const string = (x: unknown): string => (typeof x === "string" ? x : "");
    const number = (x: unknown): number => (typeof x === "number" && Number.isFinite(x) ? x : Date.now());
    if (typeof value?.id !== "string" || typeof value.messages !== "object" || value.messages === null) {
        throw new Error("a conversation of the file is damaged");
    }
    const messages: Conversation["messages"] = {};
    for (const m of Object.values<any>(value.messages)) {
        if (typeof m?.id !== "string" || typeof m.text !== "string" || !["user", "assistant", "tool"].includes(m.role)) {
            throw new Error("a message of the file is damaged");
        }
        messages[m.id] = { ...m, parent: typeof m.parent === "string" ? m.parent : null, created: number(m.created) };
    }
    for (const start of Object.values(messages)) { // a ring of parents would never end
        const seen = new Set<string>();
        for (let m = start; m.parent !== null && messages[m.parent]; m = messages[m.parent]) {
            if (seen.has(m.id)) {
                throw new Error("messages of the file follow each other in a ring");
            }
            seen.add(m.id);
        }
    }
    const settings = noSettings();
    for (const name of Object.keys(settings) as (keyof typeof settings)[]) {
        settings[name] = string(value.settings?.[name]);
    }
    return { id: value.id, title: string(value.title), created: number(value.created), changed: number(value.changed), model: string(value.model), settings, messages, leaf: messages[value.leaf] ? value.leaf : null };
}
