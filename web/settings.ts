// What one conversation is told beside its messages: system text, sampling, thinking, tools.

import type { Conversation, Settings } from "./conversation";
import { h, iconButton } from "./dom";

interface Field {
    name: keyof Settings;
    label: string;
    hint: string;
    step?: string;
}

const numbers: Field[] = [
    { name: "temperature", label: "Temperature", hint: "0: always the likeliest word", step: "0.05" },
    { name: "top_p", label: "Top p", hint: "only the words that make up this share", step: "0.01" },
    { name: "top_k", label: "Top k", hint: "only so many words; 0: all", step: "1" },
    { name: "min_p", label: "Min p", hint: "words at least so likely as this share of the best", step: "0.01" },
    { name: "repeat_penalty", label: "Repeat penalty", hint: "1: none", step: "0.05" },
    { name: "max_tokens", label: "Longest answer", hint: "tokens", step: "1" },
    { name: "seed", label: "Seed", hint: "the same seed gives the same answer", step: "1" },
];

function toolsFault(text: string): string {
    if (text.trim() === "") {
        return "";
    }
    try {
        return Array.isArray(JSON.parse(text)) ? "" : "A list of tools is needed, as OpenAI's clients send it.";
    } catch (e) {
        return `This is no JSON: ${e instanceof Error ? e.message : e}`;
    }
}

/** The panel, and `defaults` (of the server) where a field is empty. */
export function settingsPanel(c: Conversation, defaults: Record<string, number>, changed: () => void, closed: () => void): HTMLElement {
    const set = (name: keyof Settings, value: string): void => {
        c.settings[name] = value;
        changed();
    };
    const system = h("textarea", { id: "set-system", rows: 5, placeholder: "What the model should know and how it should answer", oninput: () => set("system", system.value) });
    system.value = c.settings.system;
    const fields = numbers.map((f) => {
        const input = h("input", { id: `set-${f.name}`, type: "number", step: f.step, placeholder: defaults[f.name] !== undefined && defaults[f.name] !== -1 ? String(Number(defaults[f.name].toPrecision(3))) : "as the server", oninput: () => set(f.name, input.value) });
        input.value = c.settings[f.name];
        return h("div", { class: "setting" }, h("label", { for: `set-${f.name}` }, f.label), input, h("small", {}, f.hint));
    });
    const thinking = h("select", { id: "set-reasoning", onchange: () => set("reasoning", thinking.value) }, ...[["", "as the model does"], ["none", "none"], ["low", "little"], ["medium", "some"], ["high", "much"]].map(([value, label]) => h("option", { value }, label)));
    thinking.value = c.settings.reasoning;
    const fault = h("small", { class: "fault", role: "alert" }, toolsFault(c.settings.tools));
    const tools = h("textarea", { id: "set-tools", rows: 6, spellcheck: "false", class: "mono", placeholder: '[{"type": "function", "function": {"name": …}}]' });
    tools.addEventListener("input", () => {
        fault.textContent = toolsFault(tools.value);
        set("tools", fault.textContent ? "" : tools.value);
    });
    tools.value = c.settings.tools;
    return h(
        "section",
        { class: "settings", "aria-label": "Settings of this conversation", onkeydown: (e: KeyboardEvent) => e.key === "Escape" && (e.preventDefault(), closed()) },
        h("div", { class: "settings-head" }, h("h2", {}, "This conversation"), iconButton("close", "Close settings", closed)),
        h("label", { for: "set-system" }, "System text"),
        system,
        h("div", { class: "setting-grid" }, ...fields, h("div", { class: "setting" }, h("label", { for: "set-reasoning" }, "Thinking"), thinking)),
        h("label", { for: "set-tools" }, "Tools (JSON)"),
        tools,
        fault,
    );
}
