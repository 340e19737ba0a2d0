// The list of conversations: search, new, take away, bring back.

import type { Conversation } from "./conversation";
import { asMarkdown } from "./conversation";
import { announce, fill, h, icon, iconButton } from "./dom";
import type { Library } from "./library";
import { ago, plural } from "./units";

export interface SidebarActions {
    open(c: Conversation): void;
    fresh(): void;
    removed(c: Conversation): void;
    imported(): void;
}

/** Hands a file to the person. */
export function saveFile(name: string, type: string, text: string): void {
    const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export class Sidebar {
    readonly element: HTMLElement;
    private readonly search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations" });
    private readonly list = h("ul", { class: "conversations" });
    private readonly picker = h("input", { type: "file", accept: ".json,application/json", hidden: true });
    private readonly problem = h("p", { class: "fault", role: "alert", hidden: true });
    private current = "";

    constructor(
        private readonly library: Library,
        private readonly actions: SidebarActions,
    ) {
        this.search.addEventListener("input", () => this.show(this.current));
        this.picker.addEventListener("change", () => void this.import());
        this.element = h(
            "aside",
            { class: "sidebar", id: "sidebar", "aria-label": "Conversations" },
            h("div", { class: "sidebar-head" }, h("button", { type: "button", class: "button new", onclick: () => actions.fresh() }, icon("plus"), "New conversation")),
            this.search,
            this.list,
            this.problem,
            h(
                "div",
                { class: "sidebar-foot" },
                h("button", { type: "button", class: "link", onclick: () => saveFile("conversations.json", "application/json", library.export(library.search(""))) }, "Export all"),
                h("button", { type: "button", class: "link", onclick: () => this.picker.click() }, "Import"),
                this.picker,
            ),
        );
    }

    show(current: string): void {
        this.current = current;
        const found = this.library.search(this.search.value);
        fill(this.list, ...found.map((c) => this.line(c)));
        if (found.length === 0) {
            fill(this.list, h("li", { class: "empty" }, this.search.value ? "No conversation contains all these words." : "No conversations yet. They are stored in this browser."));
        }
    }

    private line(c: Conversation): HTMLElement {
        const title = c.title || "New conversation";
        return h(
            "li",
            { class: c.id === this.current ? "current" : null },
            h("button", { type: "button", class: "conversation", "aria-current": c.id === this.current ? "true" : null, onclick: () => this.actions.open(c) }, h("span", { class: "conversation-title" }, title), h("span", { class: "conversation-age" }, ago(c.changed))),
            h(
                "span",
                { class: "conversation-actions" },
                iconButton("down", `Export ${title}`, (e) => saveFile(`${title.replace(/[^\w -]+/g, "_")}.${e.shiftKey ? "json" : "md"}`, "text/plain", e.shiftKey ? this.library.export([c]) : asMarkdown(c)), { title: "Export as Markdown (Shift: as JSON)" }),
                iconButton("trash", `Delete ${title}`, () => this.remove(c)),
            ),
        );
    }

    private remove(c: Conversation): void {
        if (confirm(`Delete “${c.title || "New conversation"}”? This cannot be undone.`)) {
            this.library.remove(c.id);
            this.actions.removed(c);
        }
    }

    private async import(): Promise<void> {
        const file = this.picker.files?.[0];
        this.problem.hidden = true;
        try {
            const taken = file ? this.library.import(await file.text()) : 0;
            announce(`${plural(taken, "conversation")} imported`);
            if (file && taken === 0) {
                this.problem.textContent = `${file.name}: nothing in it is newer than the conversations here.`;
                this.problem.hidden = false;
            }
        } catch (e) {
            this.problem.textContent = `${file?.name}: ${e instanceof Error ? e.message : e}`;
            this.problem.hidden = false;
        }
        this.picker.value = "";
        this.show(this.current);
        this.actions.imported();
    }
}
