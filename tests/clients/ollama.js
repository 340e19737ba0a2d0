// ollama.js: Ollama's official client against the server at MO_SERVER.
import { Ollama } from "ollama";
import { assert, base, hello, main, refused, test, weather } from "./check.js";

const client = new Ollama({ host: base });
const messages = [{ role: "user", content: hello }];
const options = { temperature: 0, num_predict: 16 };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather", parameters: weather } }];

test("models are listed and shown", async () => {
  const { models } = await client.list();
  assert.ok(models.some((m) => m.name.startsWith("pebble")));
  assert.ok((await client.show({ model: "pebble" })).model_info);
});

test("chats stream what they answer whole", async () => {
  const whole = await client.chat({ model: "pebble", messages, options });
  let text = "";
  let last;
  for await (const part of await client.chat({ model: "pebble", messages, options, stream: true })) {
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.ok(last.done && last.eval_count === whole.eval_count && last.total_duration > 0);
});

test("tools have objects for arguments", async () => {
  const asked = { model: "scripted", messages: [{ role: "user", content: "say @call" }], tools };
  const whole = await client.chat(asked);
  assert.deepEqual(whole.message.tool_calls[0].function.arguments, { city: "Bern", days: 2 });
  assert.equal(whole.message.thinking, "look");
  const calls = [];
  for await (const part of await client.chat({ ...asked, stream: true })) calls.push(...(part.message.tool_calls ?? []));
  assert.equal(calls.length, 1);
  const second = await client.chat({ ...asked, messages: [...asked.messages, whole.message, { role: "tool", tool_name: "get_weather", content: "sunny" }] });
  assert.equal(second.message.content, "It is sunny in Bern.");
});

test("generate, raw and load", async () => {
  const whole = await client.generate({ model: "pebble", prompt: hello, options });
  let text = "";
  for await (const part of await client.generate({ model: "pebble", prompt: hello, options, stream: true })) text += part.response;
  assert.equal(text, whole.response);
  assert.ok(whole.context.length > 16);
  assert.ok((await client.generate({ model: "pebble", prompt: "Once", raw: true, options })).response);
  assert.equal((await client.generate({ model: "pebble", prompt: "" })).done_reason, "load");
});

test("formats hold", async () => {
  const format = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"], additionalProperties: false };
  const a = await client.chat({ model: "pebble", messages, format, options: { temperature: 0, num_predict: 100 } });
  assert.equal(typeof JSON.parse(a.message.content).ok, "boolean");
});

test("a call that is cut is a call without its arguments", async () => {
  for (let num_predict = 1; num_predict < 30; num_predict += 4) {
    const asked = { model: "scripted", messages: [{ role: "user", content: "say @call" }], tools, options: { num_predict } };
    const { message, done_reason } = await client.chat(asked);
    assert.equal(done_reason, "length");
    assert.ok("I look.".startsWith(message.content), message.content);
    for (const call of message.tool_calls ?? []) assert.equal(typeof call.function.arguments, "object");
  }
});

test("errors are the client's own", async () => {
  const bad = await refused(client.chat({ model: "pebble", messages, options: { temperature: "hot" } }), 400);
  assert.match(bad.message, /temperature/);
  await refused(client.embed({ model: "pebble", input: "x" }), 501);
});

await main();
