// anthropic.js: Anthropic's official client against the server at MO_SERVER.
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { assert, base, hello, main, refused, test, weather } from "./check.js";

const client = new Anthropic({ baseURL: base, apiKey: "none", maxRetries: 0 });
const greedy = { model: "pebble", max_tokens: 16, temperature: 0, messages: [{ role: "user", content: hello }] };
const tools = [{ name: "get_weather", description: "The weather", input_schema: weather }];
const say = (word, more = {}) => ({ model: "scripted", max_tokens: 300, messages: [{ role: "user", content: `say ${word}` }], ...more });

test("messages stream what they answer whole", async () => {
  const whole = await client.messages.create(greedy);
  assert.equal(whole.stop_reason, "max_tokens");
  assert.equal(whole.usage.output_tokens, 16);
  const stream = client.messages.stream(greedy);
  let text = "";
  stream.on("text", (piece) => { text += piece; });
  const final = await stream.finalMessage();
  assert.equal(text, whole.content[0].text);
  assert.deepEqual(final.content, whole.content);
  assert.equal(final.stop_reason, whole.stop_reason);
  assert.equal(final.usage.input_tokens + final.usage.cache_read_input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
});

test("stop sequences are told", async () => {
  const text = (await client.messages.create(greedy)).content[0].text;
  const word = text.split(" ")[2];
  for (const a of [await client.messages.create({ ...greedy, stop_sequences: [word] }), await client.messages.stream({ ...greedy, stop_sequences: [word] }).finalMessage()]) {
    assert.equal(a.stop_reason, "stop_sequence");
    assert.equal(a.stop_sequence, word);
  }
});

test("tools are used, thoughts kept apart", async () => {
  const whole = await client.messages.create(say("@call", { tools }));
  const final = await client.messages.stream(say("@call", { tools })).finalMessage();
  for (const a of [whole, final]) {
    assert.deepEqual(a.content.map((b) => b.type), ["thinking", "text", "tool_use"]);
    assert.equal(a.content[0].thinking, "look");
    assert.deepEqual({ ...a.content[2].input }, { city: "Bern", days: 2 });
    assert.equal(a.stop_reason, "tool_use");
  }
  const messages = [
    { role: "user", content: "say @call" },
    { role: "assistant", content: final.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: final.content[2].id, content: [{ type: "text", text: "sunny" }] }] },
  ];
  const answer = await client.messages.create(say("@call", { tools, messages }));
  assert.equal(answer.content[0].text, "It is sunny in Bern.");
});

test("the tool runner calls tools until there is an answer", async () => {
  for (const stream of [false, true]) {
    const asked = [];
    const look = betaTool({ name: "get_weather", description: "The weather", inputSchema: weather, run: (input) => { asked.push(input); return "sunny"; } });
    const runner = client.beta.messages.toolRunner({ ...say("@call"), tools: [look], stream });
    const reasons = [];
    for await (const step of runner) reasons.push((stream ? await step.finalMessage() : step).stop_reason);
    const last = await runner.done();
    assert.deepEqual(asked, [{ city: "Bern", days: 2 }]);
    assert.deepEqual(reasons, ["tool_use", "end_turn"]);
    assert.equal(last.content.at(-1).text, "It is sunny in Bern.");
    assert.deepEqual(runner.params.messages.map((m) => m.role).slice(0, 3), ["user", "assistant", "user"]);
  }
  const failing = betaTool({ name: "get_weather", description: "The weather", inputSchema: weather, run: () => { throw new Error("no sunny day"); } });
  assert.equal((await client.beta.messages.toolRunner({ ...say("@call"), tools: [failing] })).content.at(-1).text, "It is sunny in Bern.");
});

test("tools can be required", async () => {
  for (const tool_choice of [{ type: "any" }, { type: "tool", name: "get_weather" }]) {
    const a = await client.messages.create({ ...greedy, max_tokens: 300, tools, tool_choice });
    assert.equal(a.content.at(-1).type, "tool_use");
  }
  const none = await client.messages.create(say("@call", { tools, tool_choice: { type: "none" } }));
  assert.ok(none.content.every((b) => b.type !== "tool_use"));
  await refused(client.messages.create({ ...greedy, tools, tool_choice: { type: "tool", name: "nothing" } }), 400);
});

test("formats and thinking have their effect, and odd histories are taken", async () => {
  const a = await client.messages.create({ ...greedy, max_tokens: 50, response_format: { type: "json_schema", json_schema: { schema: { const: [1, 2] } } } });
  assert.deepEqual(JSON.parse(a.content[0].text), [1, 2]);
  for (const more of [{ logprobs: true }, { n: 2 }]) await refused(client.messages.create({ ...greedy, ...more }), 400);
  const content = [
    { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "q" } },
    { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [{ type: "web_search_result", title: "sunny", url: "u", encrypted_content: "", page_age: null }] },
    { type: "tool_use", id: "toolu_1", name: "get_weather", input: "{\"city\":" },
  ];
  const messages = [{ role: "user", content: "x" }, { role: "assistant", content }, { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: "r" }] }];
  assert.equal((await client.messages.create(say("", { messages }))).content[0].text, "It is sunny in Bern.");
});

test("tokens are counted", async () => {
  const counted = await client.messages.countTokens({ model: "pebble", messages: greedy.messages });
  const { usage } = await client.messages.create(greedy);
  assert.equal(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
});

test("errors are the client's own", async () => {
  const bad = await refused(client.messages.create({ ...greedy, messages: [{ role: "user", content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: "" } }] }] }), 400);
  assert.ok(bad instanceof Anthropic.BadRequestError);
  assert.match(bad.message, /image input is not supported/);
  await refused(client.messages.create({ ...greedy, top_k: "many" }), 400);
});

await main();
