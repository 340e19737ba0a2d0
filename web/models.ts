// The models that the server offers, and which one is meant.

import { h } from "./dom";
import { get, watch } from "./server";

export interface Model {
    id: string;
    capabilities?: string[];
    meta?: { n_ctx: number; size: number };
    status?: { value: string };
}

const NAME = "moraine-model";
let list: Model[] = [];

/** `background`: nobody waits for them, who could be asked for a key. */
export async function loadModels(background = false): Promise<void> {
    list = (await (background ? watch : get)<{ data: Model[] }>("v1/models")).data;
}

export function modelsAreKnown(): boolean {
    return list.length > 0;
}

export function preferredModel(): string {
    const kept = localStorage.getItem(NAME) ?? "";
    return list.some((m) => m.id === kept) ? kept : (list[0]?.id ?? "");
}

/** Does the server say that this model reads pictures? */
export function readsPictures(id: string): boolean {
    return list.find((m) => m.id === (id || preferredModel()))?.capabilities?.includes("multimodal") ?? false;
}

/** The sampling that the server would use. */
export async function samplingDefaults(model: string): Promise<Record<string, number>> {
    try {
        const props = await get<any>(`props?model=${encodeURIComponent(model)}`);
        return props.default_generation_settings.params;
    } catch {
        return {};
    }
}

/** A choice of all models. Where the wanted one is not there any more it is shown as such. */
export function modelSelect(id: string, wanted: string, chosen: (id: string) => void): HTMLSelectElement {
    const names = list.map((m) => m.id);
    const select = h("select", { id, "aria-label": "Model", onchange: () => pick() }, ...names.map((name) => h("option", { value: name }, name)));
    const pick = (): void => {
        localStorage.setItem(NAME, select.value);
        chosen(select.value);
    };
    if (wanted && !names.includes(wanted)) {
        select.append(h("option", { value: wanted }, `${wanted} (unavailable)`));
    }
    select.value = wanted || preferredModel();
    return select;
}
