// recording.js: the map of experts while an answer is written, as an SVG that moves by CSS alone: an <img> of a README plays it.

const CELL = { width: 11, height: 19 }, LEFT = 46, TOP = 74, MARGIN = 22, FRAME_S = 0.2;
const escaped = (text) => text.replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`);
const hex = (pixel) => `#${[0, 8, 16].map((shift) => ((pixel >>> shift) & 255).toString(16).padStart(2, "0")).join("")}`;

// Keyframes of a property: only where it changes.
function keyframes(name, values, rule) {
  const frames = values.flatMap((value, i) => (i === 0 || value !== values[i - 1] ? [`${((100 * i) / values.length).toFixed(2).replace(/\.?0+$/, "")}%{${rule(value)}}`] : []));
  return `@keyframes ${name}{${frames.join("")}}`;
}

// The end of a text that is short enough for one line, from the beginning of a word.
function tail(text, length) {
  const line = text.replace(/\s+/g, " ").trimStart();
  return line.length <= length ? line : `… ${line.slice(line.indexOf(" ", line.length - length) + 1)}`;
}

// frames: {pixels: a number for each cell as ImageData has it, text: of the answer so far}; columns of a row; the legend's
// {name, colour}; a title.
export function recording(frames, columns, legend, title) {
  const rows = frames[0].pixels.length / columns, wide = LEFT + columns * CELL.width + MARGIN, high = TOP + rows * CELL.height + 44;
  const styles = new Map(), cells = [];
  for (let i = 0; i < frames[0].pixels.length; i++) {
    const colours = frames.map((f) => hex(f.pixels[i])), key = colours.join();
    if (!styles.has(key)) {
      styles.set(key, { name: `c${styles.size.toString(36)}`, colours });
    }
    cells.push(`<rect class="${styles.get(key).name}" x="${LEFT + (i % columns) * CELL.width}" y="${TOP + Math.floor(i / columns) * CELL.height}"/>`);
  }
  const texts = [...new Set(frames.map((f) => f.text))];
  const css = [
    `.cells rect{width:${CELL.width - 1}px;height:${CELL.height - 1}px;animation:${(frames.length * FRAME_S).toFixed(1)}s step-end infinite}`,
    `text{font:13px system-ui,"Segoe UI","Liberation Sans",sans-serif;fill:#9aa3a7}.title{font-size:17px;font-weight:600;fill:#e6e4df}.answer{fill:#e6e4df;opacity:0;animation:${(frames.length * FRAME_S).toFixed(1)}s step-end infinite}.layer{font-size:11px;text-anchor:end}`,
    ...[...styles.values()].map(({ name, colours }) => `.${name}{fill:${colours[Math.floor(frames.length / 2)]};animation-name:${name}!important}${keyframes(name, colours, (c) => `fill:${c}`)}`),
    ...texts.map((text, i) => `.t${i}{animation-name:t${i}!important}${keyframes(`t${i}`, frames.map((f) => Number(f.text === text)), (on) => `opacity:${on}`)}`),
    "@media(prefers-reduced-motion:reduce){.cells rect,.answer{animation:none!important}}",
  ];
  let at = LEFT;
  const marks = legend.map(({ name, colour }) => {
    const mark = `<rect x="${at}" y="47" width="12" height="12" rx="3" fill="${colour}"/><text x="${at + 18}" y="58">${escaped(name)}</text>`;
    at += 44 + 7 * name.length;
    return mark;
  });
  const names = Array.from({ length: rows }, (_, row) => `<text class="layer" x="${LEFT - 8}" y="${TOP + (row + 0.5) * CELL.height + 3}">${row}</text>`);
  const answers = texts.map((text, i) => `<text class="answer t${i}" x="${LEFT}" y="${high - 18}">${escaped(tail(text, 96))}</text>`);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${wide} ${high}" width="${wide}" height="${high}" role="img" aria-label="${escaped(title)}"><style>${css.join("")}</style><rect width="${wide}" height="${high}" rx="12" fill="#14181a"/><text class="title" x="${LEFT}" y="32">${escaped(title)}</text>${marks.join("")}${names.join("")}<g class="cells">${cells.join("")}</g>${answers.join("")}</svg>\n`;
}
