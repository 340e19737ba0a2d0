// The page: its views, one at a time, by the part of the address after #.

import { Chat } from "./chat";
import { byId, fill, h, write } from "./dom";
import { Experts } from "./experts";
import { listen } from "./live";
import { Machine } from "./machine";
import { Profiles } from "./profile";
import { applyTheme, themeButton } from "./theme";
import { digits } from "./units";

interface View {
    element: HTMLElement;
    show?(): void;
    hide?(): void;
    focus?(): void;
}

applyTheme();
const experts = new Experts();
const chat = new Chat((answer) => {
    location.hash = "experts";
    go();
    experts.replayOf(answer);
});
const views: Record<string, View> = {
    chat: { element: chat.element, focus: () => chat.focus() },
    experts,
    machine: new Machine(),
    profile: new Profiles(),
};
const names = Object.keys(views);
let current = "";

function go(): void {
    const wanted = location.hash.slice(1).split("/")[0];
    const name = names.includes(wanted) ? wanted : "chat";
    if (name === current) {
        return;
    }
    views[current]?.hide?.();
    current = name;
    fill(byId("view"), views[name].element);
    views[name].show?.();
    for (const link of document.querySelectorAll<HTMLAnchorElement>("nav a")) {
        const here = link.hash === `#${name}`;
        link.toggleAttribute("aria-current", here);
        if (here) {
            link.setAttribute("aria-current", "page");
            document.title = name === "chat" ? "Moraine" : `${link.textContent} · Moraine`;
        }
    }
}

const rate = h("b"), unit = h("span");
let shown = 0;
fill(byId("speed"), rate, unit);
byId("tools").append(themeButton());
addEventListener("hashchange", go);
addEventListener("keydown", (e) => {
    const index = e.altKey && !e.ctrlKey && !e.metaKey ? Number(e.key) - 1 : -1;
    if (names[index]) {
        e.preventDefault();
        location.hash = names[index];
    } else if (e.altKey && e.key.toLowerCase() === "n") {
        e.preventDefault();
        location.hash = "chat";
        chat.fresh();
    }
});
go();
void chat.start().then(() => {
    views[current].focus?.();
    // After the key, if one was needed: the chat's start asks for it.
    listen((status) => {
        const now = status.models.reduce((sum, m) => sum + (m.now?.predicted_tokens_s ?? 0), 0);
        if (now > 0 === (rate.textContent !== "") && Date.now() - shown < 1000) {
            return; // figures that change faster cannot be read
        }
        shown = Date.now();
        write(rate, now > 0 ? digits(now) : "");
        write(unit, now > 0 ? " tokens/s" : "");
    });
});
