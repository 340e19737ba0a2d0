// Light or dark: as the system is, unless the person chose.

import { iconButton } from "./dom";

type Theme = "dark" | "light";

const NAME = "moraine-theme";
const DARK = "(prefers-color-scheme: dark)";
let chosen: Theme | null = null;
let rules: CSSMediaRule[] | null = null; // with the dark colours

export function isDark(): boolean {
    return chosen ? chosen === "dark" : matchMedia(DARK).matches;
}

/** Drawings that read colours from the style sheet are told when they change. */
export function onThemeChange(redraw: () => void): void {
    matchMedia(DARK).addEventListener("change", redraw);
    document.addEventListener("themechange", redraw);
}

/** The dark colours stand in the style sheet once, for systems that are dark; a choice changes what they are for. */
function choose(theme: Theme): void {
    chosen = theme;
    rules = rules ?? [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule): rule is CSSMediaRule => rule instanceof CSSMediaRule && rule.media.mediaText === DARK);
    rules.forEach((rule) => (rule.media.mediaText = theme === "dark" ? "all" : "not all"));
}

export function applyTheme(): void {
    const kept = localStorage.getItem(NAME);
    if (kept === "dark" || kept === "light") {
        choose(kept);
    }
}

export function themeButton(): HTMLButtonElement {
    return iconButton("sun", "Switch between light and dark", () => {
        choose(isDark() ? "light" : "dark");
        localStorage.setItem(NAME, chosen ?? "");
        document.dispatchEvent(new Event("themechange"));
    });
}

/** A colour of the style sheet. */
export function colour(name: string): string {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
