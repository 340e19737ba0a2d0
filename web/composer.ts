// Where messages are written: a field that grows, files as text, pictures, sending and stopping.

import type { Attachment, Picture } from "./conversation";
import { announce, fill, h, icon, iconButton } from "./dom";
import { bytes } from "./units";

const FILE_BYTES = 1 << 20;
const PICTURE_BYTES = 20 << 20; // as the server has it
const PICTURES = /^image\/(png|jpeg|webp|gif|bmp)$/;

/** What a message has beside its text. */
export interface Extras {
    files: Attachment[];
    pictures: Picture[];
}

function dataUrl(file: File): Promise<string> {
    return new Promise((resolve, reject) => {
        const reader = new FileReader();
        reader.onload = () => resolve(reader.result as string);
        reader.onerror = () => reject(reader.error);
        reader.readAsDataURL(file);
    });
}

export class Composer {
    readonly element: HTMLFormElement;
    readonly field = h("textarea", { id: "message", rows: 1, placeholder: "Write a message", "aria-label": "Message", enterkeyhint: "send" });
    private readonly chips = h("div", { class: "chips" });
    private readonly button = h("button", { type: "submit", class: "send" });
    private readonly picker = h("input", { type: "file", multiple: true, hidden: true, onchange: () => void this.take(this.picker.files) });
    private readonly attach = iconButton("file", "Attach text files", () => this.picker.click());
    private files: Attachment[] = [];
    private pictures: Picture[] = [];
    private readsPictures = false;
    private running = false;

    constructor(
        private readonly sent: (text: string, extras: Extras) => void,
        private readonly stopped: () => void,
    ) {
        this.element = h(
            "form",
            { class: "composer", onsubmit: (e: SubmitEvent) => (e.preventDefault(), this.submit()) },
            this.chips,
            h("div", { class: "composer-row" }, this.attach, this.picker, this.field, this.button),
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
        this.field.addEventListener("paste", (e) => {
            const data = e.clipboardData;
            if (data && data.files.length > 0 && !data.types.includes("text/plain")) { // a table is copied as text and as a picture
                e.preventDefault();
                void this.take(data.files);
            }
        });
        this.setRunning(false);
    }

    /** Does the model read pictures? Only then they are offered. */
    setPictures(reads: boolean, area: HTMLElement): void {
        const label = reads ? "Attach text files or pictures" : "Attach text files";
        this.readsPictures = reads;
        this.attach.setAttribute("aria-label", label);
        this.attach.title = label;
        area.classList.toggle("reads-pictures", reads);
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
        if (text === "" && this.files.length === 0 && this.pictures.length === 0) {
            return;
        }
        const extras = { files: this.files, pictures: this.pictures };
        this.field.value = "";
        this.files = [];
        this.pictures = [];
        this.show();
        this.grow();
        this.sent(text, extras);
    }

    private grow(): void {
        this.field.style.height = "auto";
        this.field.style.height = `${Math.min(this.field.scrollHeight, innerHeight * 0.4)}px`;
    }

    private async take(list: FileList | null): Promise<void> {
        for (const file of list ?? []) {
            const taken = file.type.startsWith("image/") && file.type !== "image/svg+xml" ? this.takePicture(file) : this.takeText(file);
            const problem = await taken.catch(() => "cannot be read");
            if (problem) {
                announce(`${file.name} ${problem}`);
            }
            this.show(problem && `${file.name} ${problem}`);
        }
        this.picker.value = "";
        this.field.focus();
    }

    /** What is wrong with it; "": nothing. */
    private async takeText(file: File): Promise<string> {
        const text = file.size <= FILE_BYTES ? await file.text() : null;
        if (text === null || text.includes("\0")) {
            return text === null ? `is ${bytes(file.size)}; the limit is 1 MiB` : "is not a text file";
        }
        this.files.push({ name: file.name, text });
        return "";
    }

    private async takePicture(file: File): Promise<string> {
        if (!this.readsPictures) {
            return "is a picture, which this model does not read";
        }
        if (!PICTURES.test(file.type)) {
            return "is no PNG, JPEG, WebP, GIF or BMP file";
        }
        if (file.size > PICTURE_BYTES || file.size === 0) {
            return file.size ? `is ${bytes(file.size)}; the limit is 20 MiB` : "is empty";
        }
        this.pictures.push({ name: file.name, url: await dataUrl(file) });
        return "";
    }

    private show(problem = ""): void {
        const pictures = this.pictures.map((p, i) => h("span", { class: "chip picture-chip" }, h("img", { src: p.url, alt: `Picture ${p.name}`, title: p.name }), iconButton("close", `Remove ${p.name}`, () => (this.pictures.splice(i, 1), this.show()))));
        const chips = this.files.map((f, i) => h("span", { class: "chip" }, `${f.name} · ${bytes(f.text.length)}`, iconButton("close", `Remove ${f.name}`, () => (this.files.splice(i, 1), this.show()))));
        fill(this.chips, ...pictures, ...chips, problem && h("span", { class: "fault", role: "alert" }, problem));
    }
}
