// Elements made of a text of HTML by copying what is on a short list, one by one. Nothing is filtered in place: what is not
// on the list is not copied, and nothing is written as HTML again, so that there is nothing to be read in two ways.

interface List {
    space: string;
    tags: Set<string>;
    attributes: Set<string>;
}

function words(text: string): Set<string> {
    return new Set(text.split(" "));
}

export const PROSE: List = {
    space: "http://www.w3.org/1999/xhtml",
    tags: words("p br hr h1 h2 h3 h4 h5 h6 strong em del code pre blockquote ul ol li table thead tbody tr th td a input span div"),
    attributes: words("href title class align start type checked disabled data-display"),
};

export const MATH: List = {
    space: "http://www.w3.org/1998/Math/MathML",
    tags: words("math semantics mrow mi mo mn ms mtext mspace msub msup msubsup mfrac msqrt mroot mover munder munderover mmultiscripts mtable mtr mtd mlabeledtr mstyle mpadded mphantom menclose mglyph annotation"),
    attributes: words("display encoding mathvariant stretchy fence separator accent accentunder linethickness scriptlevel displaystyle columnalign columnspacing rowspacing columnlines rowlines width height depth voffset lspace rspace minsize maxsize mathcolor mathbackground notation symmetric movablelimits form"),
};

/** Links lead to web pages and mail boxes, or to places of this page; others (javascript:, data:) nowhere. */
function leadsSomewhere(target: string): boolean {
    try {
        return ["http:", "https:", "mailto:"].includes(new URL(target, "https://page.invalid/").protocol);
    } catch {
        return false;
    }
}

const DEPTH = 200;

function copy(from: Node, to: Node, list: List, depth: number): void {
    for (const child of from.childNodes) {
        if (child.nodeType === Node.TEXT_NODE) {
            to.appendChild(document.createTextNode(child.nodeValue ?? ""));
        } else if (child instanceof Element) {
            const name = child.localName;
            if (!list.tags.has(name) || (name === "input" && child.getAttribute("type") !== "checkbox")) {
                continue;
            }
            if (depth >= DEPTH) {
                to.appendChild(document.createTextNode(child.textContent ?? ""));
                continue;
            }
            const made = document.createElementNS(list.space, name);
            for (const { name: attribute, value } of child.attributes) {
                if (list.attributes.has(attribute) && (attribute !== "href" || leadsSomewhere(value))) {
                    made.setAttribute(attribute, value);
                }
            }
            copy(child, made, list, depth + 1);
            to.appendChild(made);
        }
    }
}

export function safeFragment(html: string, list: List): DocumentFragment {
    const fragment = document.createDocumentFragment();
    copy(new DOMParser().parseFromString(html, "text/html").body, fragment, list, 0);
    return fragment;
}
