// One message as it is shown, with what can be done with it.

import type { Progress } from "./answer";
import { copyButton } from "./copy";
import type { Conversation, Message } from "./conversation";
import { siblings } from "./conversation";
import { type Child, fill, h, iconButton } from "./dom";
import { MarkdownView } from "./markdown";
import { bytes, count, digits, plural, seconds, timeLeft } from "./units";

export interface Actions {
    branch(m: Message): void; // show this alternative
    edit(m: Message, text: string, resend: boolean): void;
    again(m: Message): void;
    goOn(m: Message): void;
    toolResult(m: Message, call: string, text: string): void;
    routing(m: Message): void;
}

export class MessageView {
    readonly element: HTMLElement;
    private readonly prose = new MarkdownView();
    private readonly head = h("div", { class: "message-calls" });
    private readonly foot = h("div", { class: "message-foot" });
    private readonly thought = h("div", { class: "thought-text" });
    private readonly thoughtTitle = h("summary");
    private readonly folded = h("details", { class: "thought" }, this.thoughtTitle, this.thought);
    private editing = false;
    private drawn = ""; // the text that is on the page, so that an unchanged one is not drawn again

    constructor(
        private readonly c: Conversation,
        readonly m: Message,
        private readonly actions: Actions,
    ) {
        const who = m.role === "user" ? "You" : m.role === "tool" ? "Tool result" : "Answer";
        this.element = h("article", { class: `message ${m.role}`, "aria-label": who, "data-id": m.id });
        this.build();
        this.update(false);
    }

    private build(): void {
        if (this.m.role === "assistant") {
            fill(this.element, this.folded, this.prose.element, this.head, this.foot);
        } else {
            const files = (this.m.attachments ?? []).map((a) => h("details", { class: "attachment" }, h("summary", {}, `${a.name}, ${bytes(a.text.length)}`), h("pre", { tabindex: 0 }, a.text)));
            fill(this.element, h("div", { class: "bubble" }, ...pictureViews(this.m), ...files, this.m.text && h("div", { class: "said" }, this.m.text)), this.foot);
        }
    }

    /** Draws what has changed. `running`: more is to come. */
    update(running: boolean, progress: Progress | null = null): void {
        if (this.editing) {
            return;
        }
        const m = this.m;
        if (m.role === "assistant") {
            this.folded.hidden = !m.thought;
            this.thought.textContent = m.thought ?? "";
            this.thoughtTitle.textContent = m.thoughtSeconds !== undefined ? `Thought for ${seconds(m.thoughtSeconds)}` : running && !m.text ? "Thinking…" : "Thought";
            const state = `${running} ${m.text}`;
            if (state !== this.drawn) {
                this.prose.update(m.text, !running);
                this.drawn = state;
            }
            this.element.classList.toggle("running", running);
            this.element.setAttribute("aria-busy", String(running));
            fill(this.head, ...this.calls(running));
        }
        fill(this.foot, ...(running ? [this.waiting(progress)] : [this.branches(), this.note(), this.buttons()]));
    }

    private waiting(p: Progress | null): Child {
        if (p && p.done < p.total) {
            const left = p.secondsLeft === null ? "" : `, about ${timeLeft(p.secondsLeft)} left`;
            return h("div", { class: "progress" }, h("progress", { max: p.total, value: p.done, "aria-label": "Prompt" }), h("span", {}, `Reading prompt: ${count(p.done)} of ${count(p.total)} tokens${left}`));
        }
        return this.m.text || this.m.thought ? null : h("span", { class: "pulse", role: "status" }, "…");
    }

    private branches(): Child {
        const all = siblings(this.c, this.m);
        const at = all.findIndex((x) => x.id === this.m.id);
        if (all.length < 2) {
            return null;
        }
        return h(
            "span",
            { class: "branches" },
            iconButton("left", "Previous version", () => this.actions.branch(all[at - 1]), { disabled: at === 0 }),
            h("span", {}, `${at + 1}/${all.length}`),
            iconButton("right", "Next version", () => this.actions.branch(all[at + 1]), { disabled: at === all.length - 1 }),
        );
    }

    private note(): Child {
        const m = this.m;
        if (m.error) {
            return h("p", { class: "fault", role: "alert" }, m.error);
        }
        if (m.role !== "assistant") {
            return null;
        }
        const parts = [m.model ?? ""];
        if (m.cost && m.cost.tokens > 0) {
            parts.push(plural(m.cost.tokens, "token"), `${digits(m.cost.rate)} tokens/s`, `${count(m.cost.cachedTokens)} of ${count(m.cost.promptTokens)} prompt tokens from the cache`);
        }
        if (m.ended === "stopped") {
            parts.push("stopped");
        } else if (m.ended === "length") {
            parts.push("token limit reached");
        }
        return h("span", { class: "note" }, parts.filter(Boolean).join(" · "));
    }

    private buttons(): Child {
        const m = this.m, actions = this.actions;
        const assistant = m.role === "assistant";
        return h(
            "span",
            { class: "actions", role: "group", "aria-label": "Message actions" },
            copyButton(() => m.text, "Copy"),
            iconButton("edit", "Edit", () => this.edit()),
            assistant && iconButton("again", "Regenerate", () => actions.again(m)),
            assistant && !m.calls?.length && iconButton("on", "Continue", () => actions.goOn(m)),
            assistant && m.answerId && iconButton("map", "Show routing", () => actions.routing(m)),
        );
    }

    private calls(running: boolean): Child[] {
        return (this.m.calls ?? []).map((call) => {
            const field = h("textarea", { rows: 2, "aria-label": `Result of ${call.name}`, placeholder: "What the tool returned" });
            const answered = Object.values(this.c.messages).some((x) => x.role === "tool" && x.callId === call.id);
            const form =
                running || answered
                    ? null
                    : h("form", { class: "call-result", onsubmit: (e: SubmitEvent) => (e.preventDefault(), this.actions.toolResult(this.m, call.id, field.value)) }, field, h("button", { class: "button", type: "submit" }, "Submit result"));
            return h("div", { class: "call" }, h("div", { class: "call-name" }, h("span", {}, "Calls "), h("b", {}, call.name)), h("pre", { tabindex: 0 }, pretty(call.arguments)), form);
        });
    }

    private edit(): void {
        this.editing = true;
        const m = this.m;
        const field = h("textarea", { class: "edit-field", "aria-label": "Message text", rows: Math.min(16, m.text.split("\n").length + 1) });
        field.value = m.text;
        const end = (resend: boolean | null): void => {
            this.editing = false;
            this.drawn = "";
            this.build();
            if (resend !== null) {
                this.actions.edit(m, field.value, resend);
            }
            this.update(false);
        };
        field.addEventListener("keydown", (e) => {
            if (e.key === "Escape") {
                e.preventDefault();
                end(null);
            } else if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
                end(true);
            }
        });
        const resend = m.role === "assistant" ? "Save and continue" : "Send as new branch";
        fill(
            this.element,
            h(
                "div",
                { class: "edit" },
                field,
                h("div", { class: "edit-actions" }, h("button", { class: "button primary", type: "button", onclick: () => end(true) }, resend), h("button", { class: "button", type: "button", onclick: () => end(false) }, "Save without sending"), h("button", { class: "button", type: "button", onclick: () => end(null) }, "Cancel")),
            ),
        );
        field.focus();
    }
}

/** Thumbnails, which a click shows larger. */
function pictureViews(m: Message): HTMLElement[] {
    return (m.pictures ?? []).map((p) => {
        const button = h("button", { type: "button", class: "picture", "aria-pressed": "false", title: p.name, onclick: () => button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false")) }, h("img", { src: p.url, alt: `Picture ${p.name}` }));
        return button;
    });
}

function pretty(json: string): string {
    try {
        return JSON.stringify(JSON.parse(json), null, 2);
    } catch {
        return json; // still on its way
    }
}
