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

/** Bytes per second, in decimal units as hardware is specified. */
export function rate(value: number): string {
    return value === 0 ? "0 B/s" : value >= 1e9 ? `${digits(value / 1e9)} GB/s` : value >= 1e6 ? `${digits(value / 1e6)} MB/s` : `${digits(value / 1e3)} kB/s`;
}

export function digits(value: number): string {
    return value >= 1000 ? count(Math.round(value)) : value >= 100 || value === 0 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function share(value: number): string {
    return `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}

export function count(value: number): string {
    return value.toLocaleString("en");
}

/** Two digits or more: "0.32", "1.7", "42". */
export function twoDigits(v: number): string {
    return v === 0 ? "0" : v < 0.995 ? v.toPrecision(2) : v < 9.95 ? v.toFixed(1) : v.toFixed(0);
}

/** Two digits at least: "1.7 ms", "42 µs", "12 s". */
export function seconds(value: number): string {
    const whole = Math.round(value);
    return value < 0.05e-6 ? "0 µs" : value < 0.9995e-3 ? `${twoDigits(value * 1e6)} µs` : value < 0.9995 ? `${twoDigits(value * 1e3)} ms` : value < 89.5 ? `${twoDigits(value)} s` : value < 5400 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Of a guess: whole seconds or minutes. */
export function timeLeft(value: number): string {
    return value < 90 ? `${Math.max(1, Math.round(value))} s` : value < 5400 ? `${Math.round(value / 60)} min` : seconds(value);
}

export function plural(value: number, one: string, many = `${one}s`): string {
    return `${count(value)} ${value === 1 ? one : many}`;
}

/** "just now", "5 min ago", or a date. */
export function ago(then: number): string {
    const minutes = Math.floor((Date.now() - then) / 60000);
    return minutes < 1 ? "just now" : minutes < 60 ? `${minutes} min ago` : minutes < 1440 ? `${Math.floor(minutes / 60)} h ago` : new Date(then).toLocaleDateString();
}
