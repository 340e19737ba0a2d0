// llama.cpp by its raw bindings, which take token ids and so need no vocabulary.
//   node llama.mjs bench MODEL --prefill N --decode N --threads N    one round, JSON on stdout; with --mmap 1 the file
//                                                                    is mapped instead of read
//   node llama.mjs logits MODEL --tokens FILE --out FILE             float32 rows, one per position
//   node llama.mjs perplexity MODEL --tokens FILE --window N         as `moraine eval --tokens`: windows of N ids, each
//                                                                    from an empty context, all but its first scored
import {readFileSync, writeFileSync} from "node:fs";
import {getLlama} from "node-llama-cpp";

const [verb, path, ...rest] = process.argv.slice(2);
const option = {};
for (let i = 0; i < rest.length; i += 2) option[rest[i].slice(2)] = rest[i + 1];
const threads = Number(option.threads ?? 1);

const llama = await getLlama({gpu: false, build: "never", maxThreads: threads, logLevel: "error"});
const bindings = llama._bindings;

async function open(context, batch, exact) {
    const model = new bindings.AddonModel(path, {addonExports: bindings, gpuLayers: 0, useMmap: option.mmap === "1"});
    if (!await model.init()) throw new Error(`${path}: llama.cpp cannot load it`);
    const ctx = new bindings.AddonContext(model, {
        contextSize: context, batchSize: batch, sequences: 1, threads, flashAttention: !exact, logitsAll: exact,
        ...(exact ? {kvCacheKeyType: 0, kvCacheValueType: 0} : {})
    });
    if (!await ctx.init()) throw new Error(`${path}: llama.cpp cannot make a context`);
    return {model, ctx};
}

function add(ctx, at, tokens, wanted) {
    ctx.initBatch(tokens.length);
    return ctx.addToBatch(0, at, Uint32Array.from(tokens), Uint32Array.from(wanted));
}

async function bench() {
    const prefill = Number(option.prefill), decode = Number(option.decode);
    const {model, ctx} = await open(Math.max(prefill, decode) + 8, Math.max(prefill, 1));
    const vocab = Number(option.vocab);
    let seed = 1;
    const next = () => Math.floor((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 4294967296 * vocab);
    const tokens = Array.from({length: Math.max(prefill, decode)}, next);
    add(ctx, 0, [tokens[0]], [0]); // warm
    await ctx.decodeBatch();
    ctx.disposeSequence(0);
    let begin = performance.now();
    add(ctx, 0, tokens.slice(0, prefill), [prefill - 1]);
    await ctx.decodeBatch();
    const prefillSeconds = (performance.now() - begin) / 1000;
    ctx.disposeSequence(0);
    begin = performance.now();
    for (let i = 0; i < decode; i++) {
        add(ctx, i, [tokens[i]], [0]);
        await ctx.decodeBatch();
    }
    const decodeSeconds = (performance.now() - begin) / 1000;
    console.log(JSON.stringify({prefill_tps: prefill / prefillSeconds, decode_tps: decode / decodeSeconds}));
}

const readIds = () => readFileSync(option.tokens, "utf8").trim().split(/\s+/).map(Number);

function makeSampler(model) {
    const sampler = new bindings.AddonSampler(model);
    sampler.applyConfig({temperature: 0});
    return sampler;
}

// Logits of every position of a sequence fed at once; each row is the caller's to use before the next one comes.
async function* rowsOf(ctx, sampler, tokens) {
    const at = add(ctx, 0, tokens, tokens.map((_, i) => i));
    await ctx.decodeBatch();
    for (const i of at) {
        const pairs = (await ctx.sampleToken(i, sampler, true, true, true, true))[3];
        const row = new Float32Array(pairs.length / 2);
        for (let k = 0; k < pairs.length; k += 2) row[pairs[k]] = pairs[k + 1];
        yield row;
    }
}

async function logits() {
    const tokens = readIds();
    const {model, ctx} = await open(tokens.length + 8, tokens.length, true);
    const rows = [];
    for await (const row of rowsOf(ctx, makeSampler(model), tokens)) rows.push(Buffer.from(row.buffer));
    writeFileSync(option.out, Buffer.concat(rows));
}

// -ln of the probability of a token, in double precision.
function loss(row, token) {
    let top = -Infinity, sum = 0;
    for (const x of row) top = Math.max(top, x);
    for (const x of row) sum += Math.exp(x - top);
    return Math.log(sum) + top - row[token];
}

async function perplexity() {
    const tokens = readIds(), window = Number(option.window ?? 512);
    const {model, ctx} = await open(window + 8, window, true);
    const sampler = makeSampler(model);
    let sum = 0, predicted = 0;
    for (let from = 0; from < tokens.length; from += window) {
        const part = tokens.slice(from, from + window);
        let position = 0;
        for await (const row of rowsOf(ctx, sampler, part)) {
            if (++position < part.length) {
                sum += loss(row, part[position]);
                predicted++;
            }
        }
        ctx.disposeSequence(0);
    }
    console.log(JSON.stringify({tokens: tokens.length, predicted, perplexity: Math.exp(sum / predicted)}));
}

await {bench, logits, perplexity}[verb]();
process.exit(0);
