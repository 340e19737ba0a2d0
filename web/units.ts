// Numbers as people read them.

const sizes = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Three digits and a unit: "52.0 MiB". */
export function bytes(value: number): string {
    let unit = 0;
    while (value >= 1024 && unit < sizes.length - 1) {
        value /= 1024;
        unit++;
    }
    return `${unit === 0 ? Math.round(value) : digits(value)} ${sizes[unit]}`;
}

/** Bytes per second, as the vendors of wires count them. */
export function rate(value: number): string {
    return value >= 1e9 ? `${digits(value / 1e9)} GB/s` : value >= 1e6 ? `${digits(value / 1e6)} MB/s` : `${digits(value / 1e3)} kB/s`;
}

export function digits(value: number): string {
    return value >= 100 || value === 0 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function share(value: number): string {
    return `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}

export function count(value: number): string {
    return value.toLocaleString("en");
}

export function seconds(value: number): string {
    return value < 0.001 ? `${(value * 1e6).toFixed(0)} µs` : value < 1 ? `${(value * 1e3).toFixed(0)} ms` : value < 90 ? `${digits(value)} s` : `${Math.floor(Math.round(value) / 60)} min ${Math.round(value) % 60} s`;
}

/** Of a guess: whole seconds. */
export function timeLeft(value: number): string {
    return value < 90 ? `${Math.max(1, Math.round(value))} s` : seconds(value);
}

export function plural(value: number, one: string, many = `${one}s`): string {
    return `${count(value)} ${value === 1 ? one : many}`;
}

/** "just now", "5 min ago", or a date. */
export function ago(then: number): string {
    const minutes = Math.floor((Date.now() - then) / 60000);
    return minutes < 1 ? "just now" : minutes < 60 ? `${minutes} min ago` : minutes < 1440 ? `${Math.floor(minutes / 60)} h ago` : new Date(then).toLocaleDateString();
}
