// Markdown of answers. HTML in it is shown as text, and what is made of the rest is copied by a short list of elements: an
// answer cannot run, load or style anything.

import { marked, type Token, type Tokens } from "marked";
import { copyButton } from "./copy";
import { h } from "./dom";
import { PROSE, safeFragment } from "./safe";

function escaped(text: string): string {
    return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** Formulas keep their source until KaTeX, which is loaded when the first one is there, has drawn them. */
function formula(name: string, level: "block" | "inline", begin: RegExp, whole: RegExp, display: boolean) {
    return {
        name,
        level,
        start: (source: string) => source.match(begin)?.index,
        tokenizer: (source: string): Token | undefined => {
            const found = whole.exec(source);
            return found ? { type: name, raw: found[0], tex: found[1] ?? found[2] } : undefined;
        },
        renderer: (token: Token) => `<${display ? "div" : "span"} class="math" data-display="${display}">${escaped(String(token.tex))}</${display ? "div" : "span"}>`,
    };
}

marked.use({
    gfm: true,
    breaks: false,
    headerIds: false,
    mangle: false,
    renderer: {
        html: escaped,
        image: (href, _title, text) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    },
    extensions: [
        formula("blockMath", "block", /\$\$|\\\[/, /^(?:\$\$([^]+?)\$\$|\\\[([^]+?)\\\])(?:[ \t]*(?:\n|$))/, true),
        formula("inlineMath", "inline", /\$|\\\(/, /^(?:\$(?![\s\d]+\s)([^\s$](?:[^$\n]*[^\s$\\])?)\$(?!\d)|\\\(([^]+?)\\\))/, false),
    ],
});

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
let math: Promise<typeof import("./math")> | null = null;

/** Colours code and draws formulas. */
async function finish(elements: Element[]): Promise<void> {
    const all = (selector: string) => elements.flatMap((e) => [...(e.matches(selector) ? [e] : []), ...e.querySelectorAll(selector)] as HTMLElement[]);
    const codes = all("code[data-language]"), formulas = all(".math");
    if (codes.length > 0) {
        code = code ?? import(parts.code);
        codes.forEach((await code).highlight);
    }
    if (formulas.length > 0) {
        math = math ?? import(parts.math);
        const { drawFormula } = await math;
        formulas.forEach(drawFormula);
    }
}

/** The text of an answer while it grows: what is complete is drawn once, only its last block again and again. */
export class MarkdownView {
    readonly element = h("div", { class: "prose" });
    private settled = 0; // so many characters are drawn for good
    private loose: Node[] = [];
    private text = "";

    /** The text so far; `complete` when nothing follows. */
    update(text: string, complete: boolean): void {
        text = text.replace(/\r\n?/g, "\n");
        if (!text.startsWith(this.text.slice(0, this.settled)) || complete) {
            this.element.replaceChildren();
            this.loose = [];
            this.settled = 0;
        }
        this.text = text;
        for (const node of this.loose) {
            node.parentNode?.removeChild(node);
        }
        this.loose = [];
        const tokens = marked.lexer(text.slice(this.settled));
        let keep = tokens.length;
        while (!complete && keep > 0 && tokens[keep - 1].type === "space") {
            keep--;
        }
        keep = complete ? keep : Math.max(0, keep - 1);
        this.append(tokens, 0, keep, true);
        this.append(tokens, keep, tokens.length, false);
    }

    private append(tokens: Tokens, from: number, to: number, settled: boolean): void {
        const some = Object.assign(tokens.slice(from, to), { links: tokens.links });
        if (some.length === 0) {
            return;
        }
        const nodes = [...draw(some).childNodes];
        if (settled) {
            this.settled += some.reduce((sum, token) => sum + token.raw.length, 0);
            this.element.append(...nodes);
            void finish(nodes.filter((node): node is Element => node instanceof Element));
        } else {
            this.element.append(...nodes);
            this.loose = nodes;
        }
    }
}
