// The settings of a conversation: system prompt, sampling, thinking, tools.

import type { Conversation, Settings } from "./conversation";
import { h, iconButton } from "./dom";

interface Field {
    name: keyof Settings;
    label: string;
    hint: string;
    step?: string;
}

const numbers: Field[] = [
    { name: "temperature", label: "Temperature", hint: "0: always the most likely token", step: "0.05" },
    { name: "top_p", label: "Top p", hint: "sample from tokens with this total probability", step: "0.01" },
    { name: "top_k", label: "Top k", hint: "sample from this many tokens; 0: all", step: "1" },
    { name: "min_p", label: "Min p", hint: "drop tokens below this fraction of the best one's probability", step: "0.01" },
    { name: "repeat_penalty", label: "Repeat penalty", hint: "1: off", step: "0.05" },
    { name: "max_tokens", label: "Max tokens", hint: "length limit of an answer", step: "1" },
    { name: "seed", label: "Seed", hint: "for reproducible answers", step: "1" },
];

function toolsFault(text: string): string {
    if (text.trim() === "") {
        return "";
    }
    try {
        return Array.isArray(JSON.parse(text)) ? "" : "Expected a JSON array of tools in OpenAI's format.";
    } catch (e) {
        return `Not valid JSON: ${e instanceof Error ? e.message : e}`;
    }
}

/** The panel, and `defaults` (of the server) where a field is empty. */
export function settingsPanel(c: Conversation, defaults: Record<string, number>, changed: () => void, closed: () => void): HTMLElement {
    const set = (name: keyof Settings, value: string): void => {
        c.settings[name] = value;
        changed();
    };
    const system = h("textarea", { id: "set-system", rows: 5, placeholder: "Instructions for the model", oninput: () => set("system", system.value) });
    system.value = c.settings.system;
    const fields = numbers.map((f) => {
        const input = h("input", { id: `set-${f.name}`, type: "number", step: f.step, placeholder: defaults[f.name] !== undefined && defaults[f.name] !== -1 ? String(Number(defaults[f.name].toPrecision(3))) : "server default", oninput: () => set(f.name, input.value) });
        input.value = c.settings[f.name];
        return h("div", { class: "setting" }, h("label", { for: `set-${f.name}` }, f.label), input, h("small", {}, f.hint));
    });
    const thinking = h("select", { id: "set-reasoning", onchange: () => set("reasoning", thinking.value) }, ...[["", "model default"], ["none", "off"], ["low", "low"], ["medium", "medium"], ["high", "high"]].map(([value, label]) => h("option", { value }, label)));
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
        { class: "settings", "aria-label": "Conversation settings", onkeydown: (e: KeyboardEvent) => e.key === "Escape" && (e.preventDefault(), closed()) },
        h("div", { class: "settings-head" }, h("h2", {}, "Conversation settings"), iconButton("close", "Close settings", closed)),
        h("label", { for: "set-system" }, "System prompt"),
        system,
        h("div", { class: "setting-grid" }, ...fields, h("div", { class: "setting" }, h("label", { for: "set-reasoning" }, "Thinking"), thinking)),
        h("label", { for: "set-tools" }, "Tools (JSON)"),
        tools,
        fault,
    );
}
