// The conversations of this browser, in its database; in memory alone where it has none (private windows of some).

import { checked } from "./checked";
import type { Conversation } from "./conversation";
import { fullText } from "./conversation";

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
    private asked = false; // for the database: it is there, or there is none
    private waiting = new Map<string, number>();
    readonly all = new Map<string, Conversation>();

    async open(): Promise<void> {
        this.database = await opened();
        const list = this.database ? await done(this.database.transaction(STORE).objectStore(STORE).getAll()) : [];
        for (const c of list as Conversation[]) {
            try {
                this.all.set(c.id, checked(c));
            } catch {
                // it stays in the database; the others are shown
            }
        }
        this.asked = true;
        this.flush(); // what somebody wrote meanwhile
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

    /** Now, or else soon, so that a streaming answer is not written for every word. */
    save(c: Conversation, now = false): void {
        this.all.set(c.id, c);
        if (now) {
            this.write(c.id);
        } else if (!this.waiting.has(c.id)) {
            const pictures = Object.values(c.messages).some((m) => m.pictures); // megabytes, which are written each time
            this.waiting.set(
                c.id,
                window.setTimeout(() => this.write(c.id), pictures ? 5000 : 400),
            );
        }
    }

    private write(id: string): void {
        clearTimeout(this.waiting.get(id));
        if (!this.asked) {
            this.waiting.set(id, 0);
            return;
        }
        this.waiting.delete(id);
        const c = this.all.get(id);
        if (this.database && c) {
            const transaction = this.database.transaction(STORE, "readwrite");
            transaction.objectStore(STORE).put(c);
            transaction.commit(); // said aloud it holds also where the page is left before it is done
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

    /** Takes a file that export() wrote; how many conversations it brought. Where one of them is here already, the one that
     *  was changed last stays. What is no conversation is refused whole. */
    import(text: string): number {
        const file = readJson(text);
        if (file?.format !== "moraine-conversations" || !Array.isArray(file.conversations)) {
            throw new Error("this is not a file of exported conversations");
        }
        const newer = file.conversations.map(checked).filter((c: Conversation) => c.changed > (this.all.get(c.id)?.changed ?? -Infinity));
        for (const c of newer) {
            this.save(c);
        }
        return newer.length;
    }
}

function readJson(text: string): any {
    try {
        return JSON.parse(text);
    } catch {
        return null;
    }
}
