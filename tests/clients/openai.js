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

test("tools are called, run and answered", async () => {
  const whole = await client.chat.completions.create(say("@call", { tools }));
  assert.equal(whole.choices[0].finish_reason, "tool_calls");
  assert.deepEqual(JSON.parse(whole.choices[0].message.tool_calls[0].function.arguments), { city: "Bern", days: 2 });
  const final = await client.chat.completions.stream(say("@two", { tools })).finalChatCompletion();
  assert.deepEqual(final.choices[0].message.tool_calls.map((c) => JSON.parse(c.function.arguments).city), ["Bern", "Zürich"]);
  const asked = [];
  const runner = client.chat.completions.runTools({
    ...say("@call"),
    tools: [{
      type: "function",
      function: {
        name: "get_weather", description: "The weather", parameters: weather, parse: JSON.parse,
        function: (given) => { asked.push(given); return "sunny"; },
      },
    }],
  });
  assert.equal(await runner.finalContent(), "It is sunny in Bern.");
  assert.deepEqual(asked, [{ city: "Bern", days: 2 }]);
});

test("a call that comes back is cached as it was made, and one that is cut stays a call", async () => {
  const asked = say(`@call ${Date.now()}`, { tools });
  const first = await client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } }).finalChatCompletion();
  const { role, content, tool_calls } = first.choices[0].message; // clients drop thoughts
  const messages = [...asked.messages, { role, content, tool_calls }, { role: "tool", tool_call_id: tool_calls[0].id, content: "sunny" }];
  const second = await client.chat.completions.create({ ...asked, messages });
  assert.equal(second.choices[0].message.content, "It is sunny in Bern.");
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= first.usage.total_tokens - 2, JSON.stringify([first.usage, second.usage]));
  let begun = 0;
  for (let max_tokens = 1; max_tokens < first.usage.completion_tokens; max_tokens += 3) {
    const cut = (await client.chat.completions.create({ ...asked, max_tokens })).choices[0];
    assert.equal(cut.finish_reason, "length");
    assert.ok("I look.".startsWith(cut.message.content ?? ""), cut.message.content);
    begun += cut.message.tool_calls?.length ?? 0;
  }
  assert.ok(begun > 2);
});

test("required tools are called by any model", async () => {
  for (const tool_choice of ["required", { type: "function", function: { name: "get_weather" } }]) {
    const a = await client.chat.completions.create({ ...greedy, max_tokens: 300, tools, tool_choice });
    assert.equal(a.choices[0].message.tool_calls[0].function.name, "get_weather");
  }
  const none = await client.chat.completions.create(say("@call", { tools, tool_choice: "none" }));
  assert.equal(none.choices[0].message.tool_calls, undefined);
  await refused(client.chat.completions.create({ ...greedy, tools, tool_choice: { type: "function", function: { name: "nothing" } } }), 400);
  await refused(client.chat.completions.create({ ...greedy, tool_choice: "required" }), 400);
});

test("schemas hold", async () => {
  const ajv = new Ajv();
  const schemas = [
    weather,
    { type: "object", properties: { list: { type: "array", items: { enum: ["a", "b"] }, minItems: 1, maxItems: 3 } }, required: ["list"], additionalProperties: false },
    { type: "object", properties: { x: { anyOf: [{ type: "null" }, { type: "boolean" }] }, n: { type: "integer", minimum: 3, maximum: 12 } }, required: ["x", "n"], additionalProperties: false },
  ];
  for (const schema of schemas) {
    const response_format = { type: "json_schema", json_schema: { name: "x", schema, strict: true } };
    const a = await client.chat.completions.create({ ...greedy, max_tokens: 400, response_format });
    if (a.choices[0].finish_reason === "stop") {
      assert.ok(ajv.validate(schema, JSON.parse(a.choices[0].message.content)), a.choices[0].message.content);
    }
  }
  const parsed = await client.chat.completions.parse({ ...greedy, max_tokens: 200, response_format: { type: "json_schema", json_schema: { name: "x", schema: schemas[2], strict: true } } });
  assert.ok(parsed.choices[0].message.parsed.n >= 3);
  const object = await client.chat.completions.create({ ...greedy, max_tokens: 400, response_format: { type: "json_object" } });
  assert.ok(object.choices[0].message.content.trimStart().startsWith("{"));
  await refused(client.chat.completions.create({ ...greedy, response_format: { type: "json_schema", json_schema: { name: "x", schema: { type: "unicorn" } } } }), 400);
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

test("responses call tools and go on", async () => {
  const flat = [{ type: "function", name: "get_weather", description: "The weather", parameters: weather, strict: true }];
  const first = await client.responses.stream({ model: "scripted", input: "say @call", tools: flat }).finalResponse();
  assert.deepEqual(first.output.map((i) => i.type), ["reasoning", "message", "function_call"]);
  assert.equal(first.output[0].content[0].text, "look");
  assert.deepEqual(JSON.parse(first.output[2].arguments), { city: "Bern", days: 2 });
  const input = [{ role: "user", content: "say @call" }, ...first.output.map(({ parsed_arguments, ...i }) => i), { type: "function_call_output", call_id: first.output[2].call_id, output: "sunny" }];
  const second = await client.responses.create({ model: "scripted", input, tools: flat });
  assert.equal(second.output_text, "It is sunny in Bern.");
  const format = { type: "json_schema", name: "x", schema: { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"], additionalProperties: false }, strict: true };
  const parsed = await client.responses.parse({ model: "pebble", input: hello, text: { format }, temperature: 0 });
  assert.equal(typeof parsed.output_parsed.ok, "boolean");
});

test("responses are kept, gone on from, listed and deleted", async () => {
  const flat = [{ type: "function", name: "get_weather", description: "The weather", parameters: weather, strict: true }];
  const first = await client.responses.create({ model: "scripted", input: "say @call", tools: flat });
  const answer = { type: "function_call_output", call_id: first.output[2].call_id, output: "sunny" };
  const second = await client.responses.stream({ model: "scripted", previous_response_id: first.id, input: [answer], tools: flat }).finalResponse();
  assert.equal(second.output_text, "It is sunny in Bern.");
  assert.equal(second.previous_response_id, first.id);
  assert.equal((await client.responses.retrieve(second.id)).output_text, second.output_text);
  const types = [];
  for await (const item of client.responses.inputItems.list(second.id, { order: "asc", limit: 2 })) types.push(item.type);
  assert.deepEqual(types, ["message", "reasoning", "message", "function_call", "function_call_output"]);
  await client.responses.delete(second.id);
  await refused(client.responses.retrieve(second.id), 404);
  const unkept = await client.responses.create({ model: "scripted", input: "hi", store: false });
  await refused(client.responses.create({ model: "scripted", previous_response_id: unkept.id, input: "x" }), 400);
});

test("responses take items of other servers, and name what they leave out", async () => {
  const input = [
    { role: "user", content: "x" }, { type: "item_reference", id: "msg_1" },
    { type: "local_shell_call", id: "s", call_id: "c", status: "completed", action: { type: "exec", command: ["ls"], env: {} } },
    { type: "local_shell_call_output", id: "c", output: "sunny" },
  ];
  const a = await client.responses.create({ model: "scripted", input });
  assert.equal(a.output_text, "It is sunny in Bern.");
  assert.match(a.warnings[0], /^input\[1\]/);
});

test("errors are the client's own", async () => {
  const bad = await refused(client.chat.completions.create({ ...greedy, temperature: "hot" }), 400);
  assert.equal(bad.param, "temperature");
  assert.ok(bad instanceof OpenAI.BadRequestError);
  const long = await refused(client.chat.completions.create({ ...greedy, messages: [{ role: "user", content: "fox ".repeat(5000) }] }), 400);
  assert.equal(long.code, "context_length_exceeded");
  for (const [field, value] of Object.entries({ best_of: 2, echo: true, suffix: "x", modalities: ["text", "audio"], guided_regex: "a" })) {
    assert.match((await refused(client.chat.completions.create({ ...greedy, [field]: value }), 400)).message, new RegExp(field));
  }
  const none = Object.fromEntries([...Array(4096).keys()].map((i) => [i, -100]));
  assert.equal((await refused(client.chat.completions.create({ ...greedy, logit_bias: none }), 400)).param, "logit_bias");
  await refused(client.embeddings.create({ model: "pebble", input: "x" }), 501);
});

test("a stream can be left", async () => {
  const stream = await client.chat.completions.create({ ...greedy, max_tokens: 2000, stream: true, ignore_eos: true });
  for await (const chunk of stream) if (chunk.choices[0]?.delta?.content) break;
  stream.controller.abort();
});

await main();
