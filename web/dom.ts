// Elements of the page, made by scripts.

export type Child = Node | string | number | null | undefined | false;
type Value = string | number | boolean | null | undefined | ((event: never) => void);

/** Makes an element. Functions are listeners ("onclick"), true is an attribute without a value, false and null are none. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Record<string, Value> = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === "function") {
            element.addEventListener(name.slice(2), value as EventListener);
        } else if (value !== false && value !== null && value !== undefined) {
            element.setAttribute(name, value === true ? "" : String(value));
        }
    }
    put(element, ...children);
    return element;
}

export function put(parent: ParentNode, ...children: Child[]): void {
    for (const child of children) {
        if (child !== null && child !== undefined && child !== false) {
            parent.append(typeof child === "number" ? String(child) : child);
        }
    }
}

export function fill(parent: Element, ...children: Child[]): void {
    parent.replaceChildren();
    put(parent, ...children);
}

/** Sets the text of an element, where it is another one. */
export function write(element: Element, text: string): void {
    if (element.textContent !== text) {
        element.textContent = text;
    }
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of a drawing. */
export function s(tag: string, attributes: Record<string, string | number> = {}, ...children: Child[]): SVGElement {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) {
        element.setAttribute(name, String(value));
    }
    put(element, ...children);
    return element;
}

// Strokes on a field of 24 by 24.
const icons = {
    plus: "M12 5v14M5 12h14",
    menu: "M4 7h16M4 12h16M4 17h16",
    close: "M6 6l12 12M18 6L6 18",
    send: "M12 19V5M6 11l6-6 6 6",
    stop: "M7 7h10v10H7z",
    copy: "M9 9h11v11H9zM5 15H4V4h11v1",
    edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
    again: "M19 12a7 7 0 1 1-2.1-5M19 4v4h-4",
    on: "M5 5v14M9 12h11M15 7l5 5-5 5",
    trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
    left: "M14 6l-6 6 6 6",
    right: "M10 6l6 6-6 6",
    tune: "M4 8h8M18 8h2M4 16h2M12 16h8M15 5.5v5M9 13.5v5",
    down: "M12 4v12M6 11l6 6 6-6M5 20h14",
    up: "M12 17V5M6 10l6-6 6 6M5 20h14",
    file: "M6 3h8l4 4v14H6zM14 3v4h4",
    map: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z",
    sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M19 5l-1.4 1.4M6.4 17.6L5 19",
    play: "M8 5l11 7-11 7z",
};
export type Icon = keyof typeof icons;

export function icon(name: Icon): SVGElement {
    return s("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, s("path", { d: icons[name] }));
}

/** A button that shows a drawing and says its name to those who do not see it. */
export function iconButton(name: Icon, label: string, action: (event: MouseEvent) => void, attributes: Record<string, Value> = {}): HTMLButtonElement {
    return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick: action, ...attributes }, icon(name));
}

export function byId<T extends HTMLElement>(id: string): T {
    const element = document.getElementById(id);
    if (!element) {
        throw new Error(`the page has no #${id}`);
    }
    return element as T;
}

let terms = 0;

/** A term with an explanation, which is shown when somebody points at it, taps it or comes to it with Tab. */
export function term(name: string, explanation: string): HTMLElement {
    const id = `term-${++terms}`;
    return h("span", { class: "term" }, h("span", { class: "term-name", tabindex: 0, "aria-describedby": id }, name), h("span", { class: "term-tip", role: "tooltip", id }, explanation));
}

/** Tells people who listen to the page what they cannot see happening. */
export function announce(text: string): void {
    byId("announcements").textContent = text;
}
