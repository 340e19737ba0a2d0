// Where messages are written: a field that grows, files as text, sending and stopping.

import type { Attachment } from "./conversation";
import { announce, fill, h, icon, iconButton } from "./dom";
import { bytes } from "./units";

const FILE_BYTES = 1 << 20;

export class Composer {
    readonly element: HTMLFormElement;
    readonly field = h("textarea", { id: "message", rows: 1, placeholder: "Write a message", "aria-label": "Message", enterkeyhint: "send" });
    private readonly chips = h("div", { class: "chips" });
    private readonly button = h("button", { type: "submit", class: "send" });
    private readonly picker = h("input", { type: "file", multiple: true, hidden: true, onchange: () => void this.take(this.picker.files) });
    private files: Attachment[] = [];
    private running = false;

    constructor(
        private readonly sent: (text: string, files: Attachment[]) => void,
        private readonly stopped: () => void,
    ) {
        this.element = h(
            "form",
            { class: "composer", onsubmit: (e: SubmitEvent) => (e.preventDefault(), this.submit()) },
            this.chips,
            h("div", { class: "composer-row" }, iconButton("file", "Add files as text", () => this.picker.click()), this.picker, this.field, this.button),
        );
        this.field.addEventListener("input", () => this.grow());
        this.field.addEventListener("keydown", (e) => {
            if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
                e.preventDefault();
                if (!this.running) {
                    this.submit();
                }
            }
        });
        this.setRunning(false);
    }

    /** Files that are dropped anywhere on `area` come here. */
    acceptDrops(area: HTMLElement): void {
        area.addEventListener("dragover", (e) => {
            e.preventDefault();
            area.classList.add("dropping");
        });
        area.addEventListener("dragleave", () => area.classList.remove("dropping"));
        area.addEventListener("drop", (e) => {
            e.preventDefault();
            area.classList.remove("dropping");
            void this.take(e.dataTransfer?.files ?? null);
        });
    }

    setRunning(running: boolean): void {
        this.running = running;
        const label = running ? "Stop" : "Send";
        this.button.setAttribute("aria-label", label);
        this.button.title = running ? "Stop (Esc)" : "Send (Enter)";
        fill(this.button, icon(running ? "stop" : "send"));
    }

    private submit(): void {
        if (this.running) {
            this.stopped();
            return;
        }
        const text = this.field.value.trim();
        if (text === "" && this.files.length === 0) {
            return;
        }
        const files = this.files;
        this.field.value = "";
        this.files = [];
        this.show();
        this.grow();
        this.sent(text, files);
    }

    private grow(): void {
        this.field.style.height = "auto";
        this.field.style.height = `${Math.min(this.field.scrollHeight, innerHeight * 0.4)}px`;
    }

    private async take(list: FileList | null): Promise<void> {
        for (const file of list ?? []) {
            const text = file.size <= FILE_BYTES ? await file.text() : null;
            if (text === null || text.includes("\0")) {
                announce(`${file.name}: ${text === null ? "it has more than 1 MiB" : "it is no text"}`);
                this.show(`${file.name} ${text === null ? `has ${bytes(file.size)}; at most 1 MiB is taken` : "is no text"}`);
                continue;
            }
            this.files.push({ name: file.name, text });
            this.show();
        }
        this.picker.value = "";
        this.field.focus();
    }

    private show(problem = ""): void {
        const chips = this.files.map((f, i) => h("span", { class: "chip" }, `${f.name} · ${bytes(f.text.length)}`, iconButton("close", `Remove ${f.name}`, () => (this.files.splice(i, 1), this.show()))));
        fill(this.chips, ...chips, problem && h("span", { class: "fault", role: "alert" }, problem));
    }
}
