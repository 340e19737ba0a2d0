// The text of an answer read into blocks of Markdown, and where each begins in the text as it was written.

import { marked, type Extension, type Token, type Tokens } from "marked";
import { lex } from "./lexer";

function escaped(text: string): string {
    return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** Formulas keep their source until KaTeX, which is loaded when the first one is there, has drawn them. */
function formula(name: string, level: "block" | "inline", begin: RegExp, whole: RegExp, display: boolean): Extension {
    return {
        name,
        level,
        start: (source) => source.match(begin)?.index,
        tokenizer: (source) => {
            const found = whole.exec(source);
            return found ? { type: name, raw: found[0], tex: found[1] ?? found[2] } : undefined;
        },
        renderer: (token) => `<${display ? "div" : "span"} class="math" data-display="${display}">${escaped(String(token.tex))}</${display ? "div" : "span"}>`,
    };
}

/** What was left to read when the block of this number began. */
let left: string[] = [];

/** Takes nothing. It is asked before each block is read, which is the one way to learn where that begins: the lengths that
 *  marked tells are of a text with spaces for tabs, without definitions of links, and with breaks that nobody wrote. */
const place: Extension = {
    name: "place",
    level: "block",
    tokenizer(source, tokens) {
        if (tokens === this.lexer.tokens) {
            left[tokens.length] = source;
        }
        return undefined;
    },
};

marked.use({
    gfm: true,
    breaks: false,
    headerIds: false,
    mangle: false,
    renderer: {
        html: escaped,
        image: (href, _title, text) => `<a href="${escaped(href)}">${text || escaped(href)}</a>`, // the text is escaped already
    },
    extensions: [
        formula("blockMath", "block", /\$\$|\\\[/, /^(?:\$\$([^]+?)\$\$|\\\[([^]+?)\\\])(?:[ \t]*(?:\n|$))/, true),
        formula("inlineMath", "inline", /\$|\\\(/, /^(?:\$(?![\s\d]+\s)([^\s$](?:[^$\n]*[^\s$\\])?)\$(?!\d)|\\\(([^]+?)\\\))/, false),
        place, // the last is asked first
    ],
});

/** As marked reads it: with spaces for the tabs that lines begin with. */
function spaced(text: string): string {
    return text.replace(/^( *)(\t+)/gm, (_, spaces: string, tabs: string) => spaces + "    ".repeat(tabs.length));
}

/** Where `rest`, the end of spaced(text), begins in `text`. Both have the same lines. */
function beginning(rest: string, text: string): number {
    let end = text.length; // of the line in which it begins
    for (let at = rest.indexOf("\n"); at >= 0; at = rest.indexOf("\n", at + 1)) {
        end = text.lastIndexOf("\n", end - 1);
    }
    const begin = end > 0 ? text.lastIndexOf("\n", end - 1) + 1 : 0;
    const first = rest.split("\n", 1)[0];
    return text.slice(begin, end).endsWith(first) ? end - first.length : begin;
}

/** Gives the code of a fence its tabs back. */
function restoreTabs(token: Token, source: string): void {
    const code = String(token.text);
    const written = source.split("\n", code.split("\n").length + 1).slice(1).join("\n");
    if (spaced(written) === code) {
        token.text = written;
    }
}

export interface Blocks {
    tokens: Tokens;
    /** Where the block of this number begins in the text. */
    begin(block: number): number;
}

/** Throws where the text cannot be read (lexer.ts). */
export function readBlocks(text: string): Blocks {
    const whole = text === "" || text.endsWith("\n") ? text : `${text}\n`; // a fence that is still open is one by its last break
    left = [];
    const tokens = lex(whole), rests = left;
    const begin = (block: number): number => (block < tokens.length ? beginning(rests[block], whole) : text.length);
    if (text.includes("\t")) {
        tokens.forEach((token, i) => token.type === "code" && /^[`~]/.test(token.raw) && restoreTabs(token, whole.slice(begin(i))));
    }
    return { tokens, begin };
}
