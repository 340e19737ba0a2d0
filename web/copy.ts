// Copying to the clipboard.

import { announce, h, icon } from "./dom";

async function write(text: string): Promise<void> {
    if (navigator.clipboard) {
        return navigator.clipboard.writeText(text);
    }
    const field = h("textarea", { class: "offscreen" }); // pages that came over plain HTTP from elsewhere have no clipboard
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
}

export function copyButton(text: () => string, label: string): HTMLButtonElement {
    const button = h("button", { type: "button", class: "icon-button copy", "aria-label": label, title: label }, icon("copy"));
    button.addEventListener("click", async () => {
        try {
            await write(text());
            announce("Copied");
            button.classList.add("done");
            setTimeout(() => button.classList.remove("done"), 1200);
        } catch {
            announce("Copying failed: the browser does not allow it");
        }
    });
    return button;
}
