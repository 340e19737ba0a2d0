// Colours that are computed: OKLCH, in which a colour keeps its hue while it becomes lighter or darker.

import { colour, isDark } from "./theme";

/** Lightness 0 to 1, chroma, and hue in degrees. */
interface Lch {
    l: number;
    c: number;
    h: number;
}

type Lab = [number, number, number];

const linear = (v: number): number => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const gamma = (v: number): number => (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055);

function labOfHex(hex: string): Lab {
    const [r, g, b] = [1, 3, 5].map((i) => linear(parseInt(hex.slice(i, i + 2), 16) / 255));
    const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
    const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
    const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
    return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s, 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}

function labOfLch({ l, c, h }: Lch): Lab {
    return [l, c * Math.cos((h * Math.PI) / 180), c * Math.sin((h * Math.PI) / 180)];
}

/** Red, green and blue; outside of 0 to 1 where the screen does not have the colour. */
function rgbOfLab([lightness, a, b]: Lab): number[] {
    const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
    return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
}

/** A pixel as ImageData has it, read as one little-endian number. A colour that the screen does not have loses chroma, not its hue. */
function pixel(lab: Lab): number {
    let rgb = rgbOfLab(lab);
    for (let share = 0.95; share > 0 && rgb.some((v) => v < -0.001 || v > 1.001); share -= 0.05) {
        rgb = rgbOfLab([lab[0], lab[1] * share, lab[2] * share]);
    }
    const [r, g, b] = rgb.map((v) => Math.round(255 * gamma(Math.min(1, Math.max(0, v)))));
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}

/** A colour of the style sheet: #rrggbb or oklch(L C H). */
function labOf(name: string): Lab {
    const text = colour(name);
    const [l, c, h] = text.startsWith("oklch(") ? text.slice(6).split(/[ )]+/).map(Number) : [];
    return h === undefined ? labOfHex(text) : labOfLch({ l, c, h });
}

function between(a: Lab, b: Lab, share: number): Lab {
    return [a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share, a[2] + (b[2] - a[2]) * share];
}

/** Steps from one colour of the style sheet to another. */
export function ramp(from: string, to: string, steps: number): Uint32Array {
    const a = labOf(from), b = labOf(to);
    return Uint32Array.from({ length: steps }, (_, i) => pixel(between(a, b, i / (steps - 1))));
}

/** The colours of a cell: by where it is, by what just happened to it and how long ago, and by how much it is used. */
export class CellColours {
    private readonly table: Uint32Array;

    /** Names of colours for places and events; `levels` of use; `fades`: steps in which an event fades. */
    constructor(
        places: string[],
        private readonly events: string[],
        private readonly levels: number,
        private readonly fades: number,
    ) {
        const rows: number[] = [];
        for (const place of places) {
            for (const event of [null, ...events]) {
                for (let fade = 0; fade < fades; fade++) {
                    for (let level = 0; level < levels; level++) {
                        const plain = used(labOf(place), level / (levels - 1));
                        rows.push(pixel(event ? between(plain, used(labOf(event), 0.5 + (0.5 * level) / (levels - 1)), (fade + 1) / fades) : plain));
                    }
                }
            }
        }
        this.table = Uint32Array.from(rows);
    }

    /** event: 0 for none; fade: from 0, nearly gone, to fades - 1; level: 0 to 1. */
    of(place: number, event: number, fade: number, level: number): number {
        return this.table[((place * (this.events.length + 1) + event) * this.fades + fade) * this.levels + Math.round(level * (this.levels - 1))];
    }
}

/** The colour at this level of use: the same hue, from one that is just told from the others to the full one. */
function used(full: Lab, level: number): Lab {
    const faint = isDark() ? 0.36 : 0.87;
    const chroma = 0.5 + 0.5 * level;
    return [faint + (full[0] - faint) * level, full[1] * chroma, full[2] * chroma];
}

/** What a pixel of these colours is outside of all: nothing. */
export const CLEAR = 0;
