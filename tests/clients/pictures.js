// pictures.js: the three official clients with pictures: the same tokens and the same greedy text in every dialect.
import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { assert, base, main, refused, test } from "./check.js";

const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: base, apiKey: "none", maxRetries: 0 });
const ollama = new Ollama({ host: base });
const file = (name) => readFileSync(`${process.env.MO_DATA}/pictures/${name}`).toString("base64");
const photo = file("photo-61x37.png");
const url = (data) => `data:image/png;base64,${data}`;
const rows = { qwen3vlmoe: 8, qwen35moe: 8, gemma4: 45 }; // of the photo
const words = "What is in this picture?";

// Each client's whole answer: [text, prompt tokens].
const asked = {
  chat: async (model, images, text) => {
    const r = await openai.chat.completions.create({ model, temperature: 0, max_tokens: 8, messages: [{ role: "user", content: [...images.map((i) => ({ type: "image_url", image_url: { url: url(i), detail: "auto" } })), { type: "text", text }] }] });
    assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
    return [(r.choices[0].message.reasoning_content ?? "") + (r.choices[0].message.content ?? ""), r.usage.prompt_tokens];
  },
  responses: async (model, images, text) => {
    const r = await openai.responses.create({ model, temperature: 0, max_output_tokens: 8, input: [{ role: "user", content: [...images.map((i) => ({ type: "input_image", image_url: url(i), detail: "auto" })), { type: "input_text", text }] }] });
    return [r.output.flatMap((o) => o.content ?? []).map((c) => c.text).join(""), r.usage.input_tokens];
  },
  messages: async (model, images, text) => {
    const r = await anthropic.messages.create({ model, temperature: 0, max_tokens: 8, messages: [{ role: "user", content: [...images.map((i) => ({ type: "image", source: { type: "base64", media_type: "image/png", data: i } })), { type: "text", text }] }] });
    return [r.content.map((c) => (c.thinking ?? "") + (c.text ?? "")).join(""), r.usage.input_tokens + r.usage.cache_read_input_tokens];
  },
  ollama: async (model, images, text) => {
    const r = await ollama.chat({ model, options: { temperature: 0, num_predict: 8 }, messages: [{ role: "user", content: text, images }] });
    return [(r.message.thinking ?? "") + r.message.content, r.prompt_eval_count];
  },
  generate: async (model, images, text) => {
    const r = await ollama.generate({ model, options: { temperature: 0, num_predict: 8 }, prompt: text, images });
    return [(r.thinking ?? "") + r.response, r.prompt_eval_count];
  },
};

for (const model of Object.keys(rows)) {
  test(`${model}: all clients get the same tokens and text`, async () => {
    for (const images of [[photo], [photo, file("photo-20x9.png")]]) {
      const [text, tokens] = await asked.chat(model, images, words);
      for (const [name, ask] of Object.entries(asked)) {
        assert.deepEqual(await ask(model, images, words), [text, tokens], `${name}, ${images.length} pictures`);
      }
      const [, plain] = await asked.chat(model, [], words);
      assert.ok(tokens >= plain + rows[model], `${tokens}, ${plain}`);
    }
  });

  test(`${model}: streams say the same, and tokens are counted before`, async () => {
    const [text, tokens] = await asked.chat(model, [photo], words);
    const content = [{ type: "image_url", image_url: { url: url(photo) } }, { type: "text", text: words }];
    let all = "", usage;
    for await (const chunk of await openai.chat.completions.create({ model, temperature: 0, max_tokens: 8, stream: true, stream_options: { include_usage: true }, messages: [{ role: "user", content }] })) {
      all += (chunk.choices[0]?.delta?.reasoning_content ?? "") + (chunk.choices[0]?.delta?.content ?? "");
      usage = chunk.usage ?? usage;
    }
    assert.deepEqual([all, usage.prompt_tokens], [text, tokens]);
    const blocks = [{ type: "image", source: { type: "base64", media_type: "image/png", data: photo } }, { type: "text", text: words }];
    assert.equal((await anthropic.messages.countTokens({ model, messages: [{ role: "user", content: blocks }] })).input_tokens, tokens);
    assert.equal((await openai.responses.inputTokens.count({ model, input: [{ role: "user", content: [{ type: "input_image", image_url: url(photo), detail: "auto" }, { type: "input_text", text: words }] }] })).input_tokens, tokens);
  });

  test(`${model}: says that it reads pictures`, async () => {
    assert.ok((await openai.models.retrieve(model)).capabilities.includes("multimodal"));
    assert.ok((await ollama.show({ model })).capabilities.includes("vision"));
    assert.equal((await (await fetch(`${base}/props?model=${model}`)).json()).modalities.vision, true);
  });
}

test("a result of a tool may be a picture", async () => {
  const call = { type: "tool_use", id: "a", name: "shot", input: {} };
  const result = { type: "tool_result", tool_use_id: "a", content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: photo } }] };
  const r = await anthropic.messages.create({ model: "gemma4", max_tokens: 4, tools: [{ name: "shot", input_schema: { type: "object" } }], messages: [{ role: "user", content: "go" }, { role: "assistant", content: [call] }, { role: "user", content: [result] }] });
  assert.ok(r.usage.input_tokens + r.usage.cache_read_input_tokens > rows.gemma4);
});

test("a model of text alone refuses pictures, and says so before", async () => {
  assert.ok(!(await openai.models.retrieve("pebble")).capabilities.includes("multimodal"));
  assert.ok(!(await ollama.show({ model: "pebble" })).capabilities.includes("vision"));
  assert.equal((await (await fetch(`${base}/props?model=pebble`)).json()).modalities.vision, false);
  for (const [name, ask] of Object.entries(asked)) {
    const problem = await refused(ask("pebble", [photo], words), 400);
    assert.match(String(problem), /image input is not supported/, name);
  }
});

test("what is no picture, and what is elsewhere, is refused with its place", async () => {
  for (const bad of ["AAAA", "@"]) {
    for (const [name, ask] of Object.entries(asked)) {
      assert.match(String(await refused(ask("gemma4", [bad], words), 400)), /content|images\[0\]/, name);
    }
  }
  const elsewhere = { role: "user", content: [{ type: "image_url", image_url: { url: "https://example.com/a.png" } }] };
  assert.match(String(await refused(openai.chat.completions.create({ model: "gemma4", messages: [elsewhere] }), 400)), /not fetched/);
  const source = { role: "user", content: [{ type: "image", source: { type: "url", url: "https://example.com/a.png" } }] };
  assert.match(String(await refused(anthropic.messages.create({ model: "gemma4", max_tokens: 4, messages: [source] }), 400)), /not fetched/);
});

await main();
