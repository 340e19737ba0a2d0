// The server's key: asked for when it is needed, kept in this browser if the person wants that.

import { h } from "./dom";

const NAME = "moraine-key";
let current = "";
let asking: Promise<boolean> | null = null;

export function knownKey(): string {
    current = current || sessionStorage.getItem(NAME) || localStorage.getItem(NAME) || "";
    return current;
}

function keep(key: string, always: boolean): void {
    current = key;
    localStorage.removeItem(NAME);
    sessionStorage.removeItem(NAME);
    (always ? localStorage : sessionStorage).setItem(NAME, key);
}

/** Asks once for all requests that wait. False: there will be none. */
export function askForKey(wrong: boolean): Promise<boolean> {
    asking = asking ?? show(wrong).finally(() => (asking = null));
    return asking;
}

/** For those who do not ask themselves: what becomes of the question that is open, if one is. */
export function keyIsComing(): Promise<boolean> {
    return asking ?? Promise.resolve(false);
}

function show(wrong: boolean): Promise<boolean> {
    return new Promise((resolve) => {
        const field = h("input", { type: "password", id: "key", autocomplete: "current-password", required: true });
        const always = h("input", { type: "checkbox", id: "key-kept" });
        const dialog = h(
            "dialog",
            { class: "dialog", "aria-labelledby": "key-title" },
            h(
                "form",
                { method: "dialog" },
                h("h2", { id: "key-title" }, "This server requires an API key"),
                h("p", {}, wrong ? "That key was not accepted. Try another one." : "The administrator sets it with --api-key or in a key file."),
                h("label", { for: "key" }, "API key"),
                field,
                h("label", { class: "check" }, always, "Remember in this browser"),
                h("div", { class: "dialog-actions" }, h("button", { type: "button", class: "button", onclick: () => dialog.close("") }, "Not now"), h("button", { type: "submit", value: "use", class: "button primary" }, "Continue")),
            ),
        );
        dialog.addEventListener("close", () => {
            const given = dialog.returnValue === "use" && field.value !== "";
            if (given) {
                keep(field.value, always.checked);
            }
            dialog.remove();
            resolve(given);
        });
        document.body.append(dialog);
        dialog.showModal();
    });
}
