// Light or dark: as the system is, unless the person chose.

import { iconButton } from "./dom";

const NAME = "moraine-theme";

export function isDark(): boolean {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Drawings that read colours from the style sheet are told when they change. */
export function onThemeChange(redraw: () => void): void {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    document.addEventListener("themechange", redraw);
}

export function applyTheme(): void {
    const kept = localStorage.getItem(NAME);
    if (kept === "dark" || kept === "light") {
        document.documentElement.dataset.theme = kept;
    }
}

export function themeButton(): HTMLButtonElement {
    return iconButton("sun", "Light or dark", () => {
        const next = isDark() ? "light" : "dark";
        document.documentElement.dataset.theme = next;
        localStorage.setItem(NAME, next);
        document.dispatchEvent(new Event("themechange"));
    });
}

/** A colour of the style sheet. */
export function colour(name: string): string {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
