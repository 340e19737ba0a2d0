// check.js: what the tests of the page share: a browser, pages that are watched, TAP.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { chromium } from "playwright-core";

export { assert };
export const servers = JSON.parse(process.env.MO_SERVERS);
const pids = JSON.parse(process.env.MO_PIDS);
export const pictures = process.env.MO_PICTURES;
const slow = Number(process.env.MO_SLOW ?? 1);
mkdirSync(pictures, { recursive: true });

const browser = await chromium.launch({ executablePath: process.env.MO_CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage", "--enable-precise-memory-info"] });

// A page of a server in a context of its own. What it must never do is noted: errors, and requests to others.
export async function open(server, { hash = "", width = 1280, height = 800, dark = false, ...more } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", ...more });
  context.setDefaultTimeout(45_000 * slow);
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (e) => wrong.push(`error: ${e.message}`));
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && wrong.push(`console: ${m.text()}`));
  page.on("request", (q) => !q.url().startsWith(servers[server]) && !/^(blob|data):/.test(q.url()) && wrong.push(`request: ${q.url()}`));
  page.wrong = wrong;
  await page.goto(servers[server] + hash);
  return page;
}

export async function picture(page, name) {
  await page.screenshot({ path: `${pictures}/${name}.png` });
}

// Says something and waits for the whole answer; gives its text.
export async function say(page, text) {
  await page.fill("#message", text);
  await page.press("#message", "Enter");
  return answered(page);
}

export async function answered(page) {
  await page.waitForSelector(".message.assistant:last-child .note, .message.assistant:last-child .fault");
  return page.innerText(".message.assistant:last-child .prose");
}

// From now on answers come from the test: give() adds to the one that runs, end() ends it.
export async function feed(page) {
  await page.addInitScript(() => {
    const real = window.fetch;
    window.fetch = (address, init) => {
      if (!String(address).includes("/v1/chat/completions")) {
        return real(address, init);
      }
      const stream = new ReadableStream({
        start(answer) {
          const send = (text) => answer.enqueue(new TextEncoder().encode(`data: ${text}\n\n`));
          window.give = (content) => send(JSON.stringify({ choices: [{ delta: { content } }] }));
          window.tell = (event) => send(JSON.stringify(event));
          window.end = () => send("[DONE]");
          init.signal.addEventListener("abort", () => answer.error(new DOMException("stopped", "AbortError")));
        },
      });
      return Promise.resolve(new Response(stream));
    };
  });
  await page.reload();
  await page.waitForSelector("#model option", { state: "attached" });
  await page.fill("#message", "hello");
  await page.press("#message", "Enter");
  await page.waitForFunction(() => window.give);
  return {
    give: async (text, last) => {
      await page.evaluate((t) => window.give(t), text);
      await page.waitForFunction((t) => document.querySelector(".message.assistant .prose").textContent.trimEnd().endsWith(t), last);
    },
    end: async () => {
      await page.evaluate(() => window.end());
      return answered(page);
    },
  };
}

// The page's events come from the test: the status of one model, which has what `model` says, and then each list of layers.
export async function live(page, server, hash, model, ...experts) {
  const none = { passes: 0, experts: 0, hits: 0, hit_rate: 0, disk_bytes: 0, wait_s: 0 };
  const engine = { parallel: 1, busy: 0, queued: 0, prompt_tokens: 0, cached_tokens: 0, predicted_tokens: 0, kept_sessions: 0, kept_session_bytes: 0, disk_sessions: 0, disk_session_bytes: 0 };
  const now = { prompt_tokens_s: 0, predicted_tokens_s: 0, experts_per_token: 0, hits_per_token: 0, disk_bytes_per_token: 0, link_bytes_per_token: 0 };
  const status = { version: "test", http: {}, models: [{ id: "pebble", state: "loaded", architecture: "test", layers: 7, experts: 64, experts_used: 6, wires: [], device: null, ...model, now: { ...now, ...model.now }, tiers: { mode: "slots", prompt: none, generation: none, ...model.tiers }, engine: { ...engine, ...model.engine } }] };
  let first = true;
  await page.route("**/v1/moraine/events**", (route) => {
    const more = first && route.request().url().includes("experts=1") ? experts : []; // once
    first = first && more.length === 0;
    const body = [`data: ${JSON.stringify(status)}`, ...more.map((layers) => `event: experts\ndata: ${JSON.stringify({ models: [{ model: status.models[0].id, layers }] })}`)].join("\n\n");
    return route.fulfill({ contentType: "text/event-stream", body: `${body}\n\n` });
  });
  await page.goto("about:blank");
  page.wrong = page.wrong.filter((line) => !line.includes("about:blank"));
  await page.goto(`${servers[server]}#${hash}`);
}

// Gives the page a file of conversations.
export async function importFile(page, conversations) {
  const buffer = Buffer.from(JSON.stringify({ format: "moraine-conversations", version: 1, conversations }));
  await page.setInputFiles(".sidebar-foot input", { name: "x.json", mimeType: "application/json", buffer });
}

// One with a question and an answer, for such a file.
export function conversation(id, text, more = {}) {
  const messages = { q: { id: "q", parent: null, role: "user", text: `about ${id}`, created: 1 }, a: { id: "a", parent: "q", role: "assistant", text, created: 2, ended: "stop" } };
  return { id, title: `about ${id}`, created: 1, changed: 2, model: "", settings: {}, messages, leaf: "a", ...more };
}

// Runs the server in short slices until `seen` holds, so that the page can keep up with it whatever else runs here.
export async function inSlices(server, page, seen) {
  const end = Date.now() + 45_000 * slow;
  try {
    for (;;) {
      process.kill(pids[server], "SIGSTOP");
      await page.waitForTimeout(60);
      if (await seen()) {
        return;
      }
      assert.ok(Date.now() < end, "it did not come");
      process.kill(pids[server], "SIGCONT");
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  } finally {
    process.kill(pids[server], "SIGCONT");
  }
}

// Holds the server while `look` happens.
export async function halted(server, look) {
  process.kill(pids[server], "SIGSTOP");
  try {
    return await look();
  } finally {
    process.kill(pids[server], "SIGCONT");
  }
}

const tests = [];
export function test(name, run) {
  tests.push({ name, run });
}

// Runs them one after the other; a name in the arguments chooses. A test that notes something wrong on a page has failed.
export async function main() {
  const chosen = tests.filter((t) => process.argv.length < 3 || process.argv.includes(t.name));
  let failures = 0;
  console.log(`1..${chosen.length}`);
  for (const [i, t] of chosen.entries()) {
    const begun = Date.now();
    try {
      await t.run();
      for (const context of browser.contexts()) {
        for (const page of context.pages()) {
          assert.deepEqual(page.wrong ?? [], []);
        }
      }
      console.log(`ok ${i + 1} - ${t.name}`);
    } catch (problem) {
      failures++;
      console.log(`not ok ${i + 1} - ${t.name}`);
      console.log(`# ${String(problem?.stack ?? problem).slice(0, 2000).replaceAll("\n", "\n# ")}`);
      await browser.contexts()[0]?.pages()[0]?.screenshot({ path: `${pictures}/failed-${t.name.replaceAll(/\W+/g, "-")}.png` });
    }
    console.log(`# ${((Date.now() - begun) / 1000).toFixed(1)} s`);
    await Promise.all(browser.contexts().map((c) => c.close()));
  }
  await browser.close();
  process.exitCode = failures ? 1 : 0;
}
