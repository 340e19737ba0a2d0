// The conversation that is open: its messages, what is written, and answers on their way.

import { answer, type Progress } from "./answer";
import { Composer, type Extras } from "./composer";
import type { Conversation, Message } from "./conversation";
import { add, choose, freshConversation, path } from "./conversation";
import { announce, fill, h, iconButton } from "./dom";
import { Library } from "./library";
import { MessageView } from "./message";
import { loadModels, modelsAreKnown, modelSelect, preferredModel, readsPictures, samplingDefaults } from "./models";
import { settingsPanel } from "./settings";
import { Sidebar } from "./sidebar";

interface Run {
    stop: AbortController;
    message: Message;
    progress: Progress | null;
}

export class Chat {
    readonly element: HTMLElement;
    private readonly library = new Library();
    private readonly sidebar = new Sidebar(this.library, { open: (c) => this.open(c), fresh: () => this.fresh(), removed: (c) => this.removed(c), imported: () => this.imported() });
    private readonly thread = h("div", { class: "thread", role: "log", "aria-live": "off", "aria-label": "Messages", tabindex: 0 });
    private readonly bar = h("div", { class: "chat-bar" });
    private readonly panel = h("div", { class: "panel", hidden: true });
    private readonly composer = new Composer((text, extras) => this.say(text, extras), () => this.stop());
    private readonly main = h("section", { class: "chat-main" });
    private views = new Map<string, MessageView>();
    private runs = new Map<string, Run>();
    private current = freshConversation("");
    private follows = true; // the end of the thread stays in sight
    private drawing = 0;
    private starting: Promise<void> = Promise.resolve();

    constructor(private readonly showRouting: (answer: string) => void) {
        fill(this.main, this.bar, this.thread, h("div", { class: "composer-place" }, this.composer.element));
        this.element = h("div", { class: "chat" }, this.sidebar.element, this.main, this.panel);
        this.composer.acceptDrops(this.main);
        document.addEventListener("keydown", (e) => this.key(e));
        this.thread.addEventListener("scroll", () => (this.follows = this.thread.scrollHeight - this.thread.scrollTop - this.thread.clientHeight < 60));
    }

    start(): Promise<void> {
        return (this.starting = this.begin());
    }

    private async begin(): Promise<void> {
        const first = this.current;
        this.render();
        await this.library.open();
        const kept = this.library.all.get(localStorage.getItem("moraine-open") ?? "");
        for (const c of this.library.all.values()) { // what was cut off when the page was closed
            for (const m of Object.values(c.messages)) {
                m.ended = m.role === "assistant" ? (m.ended ?? "stopped") : undefined;
            }
        }
        try {
            await loadModels();
        } catch (e) {
            fill(this.bar, h("p", { class: "fault", role: "alert" }, `The server is not responding: ${e instanceof Error ? e.message : e}`));
        }
        if (this.current.leaf !== null || this.current !== first) { // somebody was faster than all this
            this.current.model ||= preferredModel();
            localStorage.setItem("moraine-open", this.current.id);
            this.render();
        } else if (kept) {
            this.open(kept);
        } else {
            this.fresh();
        }
    }

    focus(): void {
        this.composer.field.focus();
    }

    fresh(): void {
        this.open(freshConversation(preferredModel()));
        this.focus();
    }

    private open(c: Conversation): void {
        this.current = c;
        this.follows = true;
        localStorage.setItem("moraine-open", c.id);
        this.element.classList.remove("sidebar-open");
        this.views.clear();
        this.closeSettings();
        this.render();
    }

    private removed(c: Conversation): void {
        this.runs.get(c.id)?.stop.abort();
        if (c.id === this.current.id) {
            this.fresh();
        } else {
            this.sidebar.show(this.current.id);
        }
    }

    /** A newer form of the open conversation may have come. */
    private imported(): void {
        const c = this.library.all.get(this.current.id);
        if (c && c !== this.current && !this.runs.has(c.id)) {
            this.open(c);
        }
    }

    /** Escape stops wherever the focus is, unless it closes something there. */
    private key(e: KeyboardEvent): void {
        const clears = e.target instanceof HTMLInputElement && e.target.type === "search" && e.target.value !== "";
        if (e.key === "Escape" && !e.defaultPrevented && !e.isComposing && !clears && this.element.isConnected && !document.querySelector("dialog[open]")) {
            this.stop();
        }
    }

    // ---- Drawing

    private render(): void {
        const c = this.current;
        const run = this.runs.get(c.id);
        const shown = path(c).map((m) => this.drawn(c, m, run));
        fill(this.thread, h("div", { class: "thread-column" }, ...(shown.length > 0 ? shown : [this.welcome()])));
        this.renderBar();
        this.composer.setRunning(run !== undefined);
        this.sidebar.show(c.id);
        this.scroll();
    }

    /** One that cannot be drawn says so, and the others are shown. */
    private drawn(c: Conversation, m: Message, run: Run | undefined): HTMLElement {
        try {
            const view = this.views.get(m.id) ?? new MessageView(c, m, this.actions);
            this.views.set(m.id, view);
            view.update(run?.message === m, run?.progress ?? null);
            return view.element;
        } catch (e) {
            return h("article", { class: "message" }, h("p", { class: "fault" }, `This message cannot be shown: ${e instanceof Error ? e.message : e}`));
        }
    }

    private renderBar(): void {
        const c = this.current;
        this.composer.setPictures(readsPictures(c.model), this.main);
        fill(
            this.bar,
            iconButton("menu", "Conversations", () => this.element.classList.toggle("sidebar-open"), { class: "icon-button only-narrow", "aria-controls": "sidebar" }),
            h("h1", { class: "chat-title" }, c.title || "New conversation"),
            modelSelect("model", c.model, (id) => this.useModel(id)),
            iconButton("tune", "Conversation settings", () => (this.panel.hidden ? void this.openSettings() : this.closeSettings())),
        );
    }

    private useModel(id: string): void {
        this.current.model = id;
        this.composer.setPictures(readsPictures(id), this.main);
        this.keep();
    }

    private welcome(): HTMLElement {
        const tries = ["Tell me a short story about a glacier.", "What is a mixture of experts?", "Write a function that reverses a list."];
        return h(
            "div",
            { class: "welcome" },
            h("h2", {}, "What would you like to talk about?"),
            h("p", {}, "Messages are sent to this server only."),
            h("div", { class: "tries" }, ...tries.map((text) => h("button", { type: "button", class: "try", onclick: () => this.say(text, { files: [], pictures: [] }) }, text))),
        );
    }

    private scroll(): void {
        if (this.follows) {
            this.thread.scrollTop = this.thread.scrollHeight;
        }
    }

    /** The running answer, once per frame however many words came. */
    private redraw(c: Conversation): void {
        this.library.save(c);
        if (c !== this.current || this.drawing) {
            return;
        }
        this.drawing = requestAnimationFrame(() => {
            this.drawing = 0;
            const run = this.runs.get(this.current.id);
            if (run) {
                this.views.get(run.message.id)?.update(true, run.progress);
                this.scroll();
            }
        });
    }

    private keep(): void {
        if (this.current.leaf !== null) {
            this.library.save(this.current);
        }
    }

    // ---- Talking

    private say(text: string, { files, pictures }: Extras): void {
        const c = this.current;
        if (this.runs.has(c.id)) {
            return;
        }
        this.follows = true;
        add(c, c.leaf, { role: "user", text, ...(files.length ? { attachments: files } : {}), ...(pictures.length ? { pictures } : {}) });
        this.reply(c);
    }

    private reply(c: Conversation): void {
        void this.run(c, add(c, c.leaf, { role: "assistant", text: "", model: c.model }));
    }

    private async run(c: Conversation, m: Message): Promise<void> {
        const run: Run = { stop: new AbortController(), message: m, progress: null };
        this.runs.set(c.id, run);
        this.library.save(c, true);
        this.render();
        announce("Answering");
        await answer(
            c,
            m,
            {
                changed: () => this.redraw(c),
                progress: (p) => {
                    run.progress = p;
                    this.redraw(c);
                },
            },
            run.stop.signal,
        );
        this.runs.delete(c.id);
        c.changed = Date.now();
        this.library.save(c, true);
        announce(m.error ? `The answer failed: ${m.error}` : m.ended === "stopped" ? "Stopped" : `Answer complete: ${m.text.slice(0, 300)}`);
        if (c === this.current) {
            this.render();
        } else {
            this.sidebar.show(this.current.id);
        }
        if (!modelsAreKnown() && !m.error) { // the key was not given, or the server was away, when the page began
            await loadModels(true).catch(() => {});
            this.renderBar();
        }
    }

    private stop(): void {
        this.runs.get(this.current.id)?.stop.abort();
    }

    private readonly actions = {
        branch: (m: Message) => {
            choose(this.current, m);
            this.keep();
            this.render();
        },
        edit: (m: Message, text: string, resend: boolean) => {
            const c = this.current;
            if (!resend || this.runs.has(c.id)) {
                m.text = text; // in place: what follows stays
            } else if (m.role === "assistant") {
                const { id: _id, parent, created: _created, cost: _cost, ...rest } = m;
                void this.run(c, add(c, parent, { ...rest, text }));
            } else {
                const { id: _id, parent, created: _created, ...rest } = m;
                add(c, parent, { ...rest, text });
                this.reply(c);
            }
            this.keep();
        },
        again: (m: Message) => {
            const c = this.current;
            if (!this.runs.has(c.id)) {
                void this.run(c, add(c, m.parent, { role: "assistant", text: "", model: c.model }));
            }
        },
        goOn: (m: Message) => {
            const c = this.current;
            if (!this.runs.has(c.id)) {
                c.leaf = m.id;
                void this.run(c, m);
            }
        },
        toolResult: (m: Message, call: string, text: string) => {
            const c = this.current;
            const result = add(c, c.leaf, { role: "tool", text, callId: call });
            const answered = new Set(path(c).map((x) => x.callId));
            this.library.save(c);
            if ((m.calls ?? []).every((x) => answered.has(x.id)) && result) {
                this.reply(c);
            } else {
                this.render();
            }
        },
        routing: (m: Message) => this.showRouting(m.answerId ?? ""),
    };

    // ---- Settings

    private async openSettings(): Promise<void> {
        await this.starting; // until then the conversation in sight may give way to the one that was open last
        const c = this.current;
        const defaults = await samplingDefaults(c.model);
        if (c !== this.current) {
            return; // another one was opened meanwhile
        }
        const panel = settingsPanel(c, defaults, () => this.keep(), () => this.closeSettings());
        fill(this.panel, panel);
        this.panel.hidden = false;
        panel.querySelector("textarea")?.focus();
    }

    private closeSettings(): void {
        if (!this.panel.hidden) {
            this.panel.hidden = true;
            fill(this.panel);
            this.bar.querySelector<HTMLButtonElement>("button:last-child")?.focus();
        }
    }
}
