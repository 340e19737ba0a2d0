// What is used of the libraries that Debian's packages bring.
declare module "marked" {
    export interface Token {
        type: string;
        raw: string;
        [key: string]: unknown;
    }
    export type Tokens = Token[] & { links: Record<string, unknown> };
    export class Renderer {
        html(text: string): string;
        image(href: string, title: string | null, text: string): string;
        link(href: string, title: string | null, text: string): string;
    }
    export interface Extension {
        name: string;
        level: "block" | "inline";
        start?(source: string): number | undefined;
        tokenizer(this: { lexer: { tokens: Tokens } }, source: string, tokens: Token[]): Token | undefined;
        renderer?(token: Token): string;
    }
    export class Lexer {
        lex(source: string): Tokens;
        inlineTokens(source: string, tokens?: Token[]): Token[];
    }
    export interface Tokenizer {
        emStrong(source: string, masked: string, before: string): Token | undefined | false;
    }
    export const marked: {
        use(options: { gfm?: boolean; breaks?: boolean; headerIds?: boolean; mangle?: boolean; renderer?: Partial<Renderer>; tokenizer?: Partial<Tokenizer>; extensions?: Extension[] }): void;
        parser(tokens: Tokens): string;
    };
}
declare module "katex" {
    const katex: { renderToString(tex: string, settings: object): string };
    export default katex;
}
declare module "highlight.js/lib/highlight" {
    const hljs: {
        configure(options: object): void;
        registerLanguage(name: string, language: unknown): void;
        getLanguage(name: string): unknown;
        highlight(language: string, text: string, lenient?: boolean): { value: string };
    };
    export default hljs;
}
declare module "highlight.js/lib/languages/*" {
    const language: unknown;
    export default language;
}
