// openai.js: OpenAI's official client against the server at MO_SERVER.
import Ajv from "ajv";
import OpenAI from "openai";
import { assert, base, hello, main, refused, test, weather } from "./check.js";

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: hello }];
const greedy = { model: "pebble", messages, temperature: 0, max_tokens: 16 };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather", parameters: weather, strict: true } }];
const say = (word, more = {}) => ({ model: "scripted", messages: [{ role: "user", content: `say ${word}` }], ...more });

test("models are listed", async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  assert.ok(ids.includes("pebble") && ids.includes("scripted"));
  assert.equal((await client.models.retrieve("pebble")).id, "pebble");
});

test("chats stream what they answer whole", async () => {
  const whole = await client.chat.completions.create(greedy);
  let text = "";
  let usage;
  for await (const chunk of await client.chat.completions.create({ ...greedy, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  const final = await client.chat.completions.stream(greedy).finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
  assert.ok(whole.system_fingerprint.startsWith("moraine-"));
});

test("choices, seeds, stops and log probabilities", async () => {
  const some = await client.chat.completions.create({ ...greedy, n: 3, temperature: 1, seed: 5 });
  assert.equal(some.choices.length, 3);
  const again = await client.chat.completions.create({ ...greedy, n: 3, temperature: 1, seed: 5 });
  assert.deepEqual(some.choices, again.choices);
  const final = await client.chat.completions.stream({ ...greedy, n: 3, temperature: 1, seed: 5 }).finalChatCompletion();
  assert.deepEqual(final.choices.map((c) => c.message.content), some.choices.map((c) => c.message.content));
  const probable = await client.chat.completions.create({ ...greedy, logprobs: true, top_logprobs: 3 });
  assert.equal(probable.choices[0].logprobs.content[0].top_logprobs.length, 3);
  const streamed = await client.chat.completions.stream({ ...greedy, logprobs: true, top_logprobs: 3 }).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].logprobs.content, probable.choices[0].logprobs.content);
  const word = probable.choices[0].message.content.split(" ")[2];
  const stopped = await client.chat.completions.create({ ...greedy, stop: [word] });
  assert.ok(!stopped.choices[0].message.content.includes(word));
  assert.equal(stopped.choices[0].finish_reason, "stop");
});

test("completions", async () => {
  const whole = await client.completions.create({ model: "pebble", prompt: ["Once", "The"], max_tokens: 8, temperature: 0, logprobs: 2 });
  assert.deepEqual(whole.choices.map((c) => c.index), [0, 1]);
  assert.equal(whole.choices[0].logprobs.tokens.join(""), whole.choices[0].text);
  const texts = ["", ""];
  for await (const chunk of await client.completions.create({ model: "pebble", prompt: ["Once", "The"], max_tokens: 8, temperature: 0, stream: true })) {
    for (const c of chunk.choices) texts[c.index] += c.text;
  }
  assert.deepEqual(texts, whole.choices.map((c) => c.text));
});

test("responses stream what they answer whole", async () => {
  const body = { model: "pebble", input: hello, temperature: 0, max_output_tokens: 16 };
  const whole = await client.responses.create(body);
  assert.equal(whole.status, "incomplete");
  const stream = client.responses.stream(body);
  let text = "";
  stream.on("response.output_text.delta", (d) => { text += d.delta; });
  const final = await stream.finalResponse();
  assert.equal(final.output_text, whole.output_text);
  assert.equal(text, whole.output_text);
  assert.equal(final.usage.output_tokens, 16);
});

test("errors are the client's own", async () => {
  const bad = await refused(client.chat.completions.create({ ...greedy, temperature: "hot" }), 400);
  assert.equal(bad.param, "temperature");
  assert.ok(bad instanceof OpenAI.BadRequestError);
  const long = await refused(client.chat.completions.create({ ...greedy, messages: [{ role: "user", content: "fox ".repeat(5000) }] }), 400);
  assert.equal(long.code, "context_length_exceeded");
  await refused(client.embeddings.create({ model: "pebble", input: "x" }), 501);
});

test("a stream can be left", async () => {
  const stream = await client.chat.completions.create({ ...greedy, max_tokens: 2000, stream: true, ignore_eos: true });
  for await (const chunk of stream) if (chunk.choices[0]?.delta?.content) break;
  stream.controller.abort();
});

await main();
