// Markdown of answers. HTML in it is shown as text, and what is made of the rest is copied by a short list of elements: an
// answer cannot run, load or style anything.

import { marked, type Tokens } from "marked";
import { readBlocks } from "./blocks";
import { copyButton } from "./copy";
import { h } from "./dom";
import { PROSE, safeFragment } from "./safe";

/** Elements for these tokens, with links that lead away safely and buttons that copy code. */
function draw(tokens: Tokens): DocumentFragment {
    const fragment = safeFragment(marked.parser(tokens), PROSE);
    for (const link of fragment.querySelectorAll("a")) {
        link.rel = "noopener noreferrer nofollow";
        link.target = "_blank";
    }
    for (const box of fragment.querySelectorAll("input")) {
        box.setAttribute("aria-label", box.checked ? "done" : "to do");
    }
    for (const table of fragment.querySelectorAll("table")) {
        const frame = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table" });
        table.replaceWith(frame);
        frame.append(table);
    }
    for (const pre of fragment.querySelectorAll("pre")) {
        frameCode(pre);
    }
    return fragment;
}

function frameCode(pre: HTMLPreElement): void {
    const code = pre.querySelector("code");
    const language = /language-([\w+#-]+)/.exec(code?.className ?? "")?.[1] ?? "";
    const frame = h("div", { class: "code" }, h("div", { class: "code-head" }, h("span", {}, language || "text"), copyButton(() => code?.textContent ?? "", "Copy code")));
    pre.replaceWith(frame);
    pre.tabIndex = 0;
    frame.append(pre);
    if (code && language) {
        code.dataset.language = language;
    }
}

// Files of their own, beside this one, loaded when there is something for them.
const parts = { code: "./code.js", math: "./math.js" };
let code: Promise<typeof import("./code")> | null = null;
let coder: typeof import("./code") | null = null; // once it is loaded
let math: Promise<typeof import("./math")> | null = null;

/** What cannot be coloured or drawn stays as it is. */
function eachAlone(elements: HTMLElement[], draw: (element: HTMLElement) => void): void {
    for (const element of elements) {
        try {
            draw(element);
        } catch {
            // too deep for the library
        }
    }
}

/** Colours code and draws formulas. */
async function finish(elements: Element[]): Promise<void> {
    const all = (selector: string) => elements.flatMap((e) => [...(e.matches(selector) ? [e] : []), ...e.querySelectorAll(selector)] as HTMLElement[]);
    const codes = all("code[data-language]"), formulas = all(".math");
    try {
        if (codes.length > 0) {
            code = code ?? import(parts.code);
            coder = await code;
            eachAlone(codes, coder.highlight);
        }
        if (formulas.length > 0) {
            math = math ?? import(parts.math);
            eachAlone(formulas, (await math).drawFormula);
        }
    } catch {
        code = math = null; // the server is away: the next answer tries again
    }
}

const SLOW_MS = 25; // for a drawing
const GROWING = 4000; // characters of a code block that is coloured while it grows

/** The text of an answer while it grows: what is complete is drawn once, only its last block again and again. What cannot be
 *  read as Markdown is shown as it is. */
export class MarkdownView {
    readonly element = h("div", { class: "prose" });
    private settled = 0; // so many characters are drawn for good
    private loose: Node[] = [];
    private text = "";
    private plain = false; // until it is complete: then it is tried once more
    private pause = 0; // a timer, after a drawing that took long
    private later: string | null = null; // what came meanwhile

    /** The text so far; `complete` when nothing follows. A block that takes long to draw (a list of thousands) is drawn for a
     *  fifth of the time at most while it grows, so that the page can be used beside it. */
    update(text: string, complete: boolean): void {
        if (this.pause && !complete) {
            this.later = text;
            return;
        }
        clearTimeout(this.pause);
        this.pause = 0;
        this.later = null;
        const begun = performance.now();
        this.show(text, complete);
        const took = performance.now() - begun;
        if (took > SLOW_MS && !complete) {
            this.pause = window.setTimeout(() => {
                this.pause = 0;
                if (this.later !== null) {
                    this.update(this.later, false);
                }
            }, 4 * took);
        }
    }

    private show(text: string, complete: boolean): void {
        text = text.replace(/\r\n?/g, "\n");
        if (!text.startsWith(this.text.slice(0, this.settled)) || complete) {
            this.clear();
        }
        this.text = text;
        for (const node of this.loose) {
            node.parentNode?.removeChild(node);
        }
        this.loose = [];
        if (!this.plain) {
            try {
                this.draw(complete);
                return;
            } catch {
                this.clear();
                this.plain = true;
            }
        }
        this.loose = [h("p", { class: "plain" }, text)];
        this.element.append(...this.loose);
    }

    private clear(): void {
        this.element.replaceChildren();
        this.loose = [];
        this.settled = 0;
        this.plain = false;
    }

    private draw(complete: boolean): void {
        const { tokens, begin } = readBlocks(this.text.slice(this.settled));
        let keep = tokens.length;
        while (!complete && keep > 0 && tokens[keep - 1].type === "space") {
            keep--;
        }
        keep = complete ? keep : Math.max(0, keep - 1);
        const good = elementsOf(tokens, 0, keep), loose = elementsOf(tokens, keep, tokens.length);
        this.element.append(...good, ...loose);
        this.settled += keep > 0 ? begin(keep) : 0;
        this.loose = loose;
        for (const node of loose) {
            const growing = node instanceof Element ? node.querySelector<HTMLElement>("code[data-language]") : null;
            if (growing && coder && (growing.textContent?.length ?? 0) < GROWING) {
                eachAlone([growing], coder.highlight); // the others get their colours when they are complete
            }
        }
        void finish(good.filter((node): node is Element => node instanceof Element));
    }
}

function elementsOf(tokens: Tokens, from: number, to: number): Node[] {
    return from < to ? [...draw(Object.assign(tokens.slice(from, to), { links: tokens.links })).childNodes] : [];
}
