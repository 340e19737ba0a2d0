// Formulas, as MathML, which browsers draw by themselves: no fonts and no styles. Loaded when the first formula is there.

import katex from "katex";
import { MATH, safeFragment } from "./safe";

export function drawFormula(element: HTMLElement): void {
    if (element.dataset.drawn) {
        return;
    }
    element.dataset.drawn = "yes";
    const tex = element.textContent ?? "";
    const made = katex.renderToString(tex, { output: "mathml", displayMode: element.dataset.display === "true", throwOnError: false, trust: false, maxExpand: 200, maxSize: 20, strict: "ignore" });
    if (made.includes("katex-error")) {
        return; // its source stays
    }
    const inner = made.replace(/ style="[^"]*"/g, "").replace(/^<span class="katex">|<\/span>$/g, "");
    element.replaceChildren(safeFragment(inner, MATH));
    element.title = tex;
}
