// The server that this page came from: requests with the key, if one is needed, and streams of events.

import { askForKey, keyIsComing, knownKey } from "./key";

export class ServerError extends Error {
    constructor(
        readonly status: number,
        message: string,
    ) {
        super(message);
    }
}

/** Paths are relative to the page, so that it works behind a prefix as well. */
function address(path: string): string {
    return new URL(path, document.baseURI).href;
}

async function failure(response: Response): Promise<ServerError> {
    const text = await response.text();
    try {
        return new ServerError(response.status, JSON.parse(text).error.message);
    } catch {
        return new ServerError(response.status, text || `the server responded with status ${response.status}`);
    }
}

/** Sends a request. Where the server wants a key, it is asked for until it is right or the person gives up; by itself, for
 *  what nobody has just asked for (`background`), the page asks for none. */
export async function send(path: string, init: RequestInit = {}, background = false): Promise<Response> {
    for (let refused = false; ; refused = true) {
        const key = knownKey();
        const headers = new Headers(init.headers);
        if (key) {
            headers.set("Authorization", `Bearer ${key}`);
        }
        const response = await fetch(address(path), { ...init, headers });
        if (response.status === 401 && (await (background ? keyIsComing() : askForKey(refused || key !== "")))) {
            continue;
        }
        if (!response.ok) {
            throw await failure(response);
        }
        return response;
    }
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return (await send(path, signal ? { signal } : {})).json();
}

/** Looks at what the page shows by itself. */
export async function watch<T>(path: string): Promise<T> {
    return (await send(path, {}, true)).json();
}

export async function post<T>(path: string, body: unknown): Promise<T> {
    return (await send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
}

export interface ServerEvent {
    kind: string; // "" where the stream does not say
    data: string;
}

/** A stream's events as they come, until it ends. */
export async function* events(response: Response): AsyncGenerator<ServerEvent> {
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let kind = "";
    try {
        for (;;) {
            const { done, value } = await reader.read();
            if (done) {
                return;
            }
            rest += value;
            const lines = rest.split("\n");
            rest = lines.pop()!;
            for (const line of lines) {
                if (line.startsWith("event:")) {
                    kind = line.slice(6).trim();
                } else if (line.startsWith("data:")) {
                    yield { kind, data: line.slice(5).trim() };
                    kind = "";
                }
            }
        }
    } finally {
        await reader.cancel().catch(() => {});
    }
}
