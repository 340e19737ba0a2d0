// views.js: experts, machine and profile in a real browser; who cannot see or use a mouse; pictures of all views.
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { promisify } from "node:util";
import { assert, main, open, picture, pictures, say, servers, test } from "./check.js";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const run = promisify(execFile);

// So many tokens are generated, whatever they say.
async function busy(server, tokens = 200) {
  const answer = await fetch(`${servers[server]}v1/completions`, { method: "POST", body: JSON.stringify({ prompt: "The fox", max_tokens: tokens, ignore_eos: true }) });
  assert.equal(answer.status, 200);
  await answer.json();
}

async function pixels(page) {
  return page.evaluate(() => document.querySelector(".grid-canvas").toDataURL());
}

for (const [server, tiers] of [["pebble", ["RAM", "disk"]], ["sim", ["VRAM", "RAM", "disk"]]]) {
  test(`the map of experts changes while ${server} writes`, async () => {
    const page = await open(server, { hash: "#experts" });
    await page.waitForSelector(".legend .ram");
    for (const tier of tiers) {
      assert.match(await page.innerText(".legend"), new RegExp(`${tier} \\d+`));
    }
    const before = await pixels(page);
    await busy(server);
    await page.waitForFunction((old) => document.querySelector(".grid-canvas").toDataURL() !== old, before);
    await page.waitForFunction(() => /of the latest choices [\d.]+ %/i.test(document.querySelector(".lead").textContent));
    await picture(page, `experts-${server}`);
  });
}

test("the map draws 61 layers of 256 experts", async () => {
  const layers = Array.from({ length: 61 }, (_, layer) => ({
    layer,
    places: Array.from({ length: 256 }, (_, e) => (e * 7 + layer) % 3).join(""),
    used: Array.from({ length: 256 }, (_, e) => ((e + layer) % 5 === 0 ? 3 : 0)).join(""),
    missed: Array.from({ length: 256 }, (_, e) => ((e + layer) % 15 === 0 ? 1 : 0)).join(""),
  }));
  const status = { version: "test", http: {}, models: [{ id: "large", state: "loaded", experts: 256, experts_used: 8, layers: 61, device: {} }] };
  const body = `data: ${JSON.stringify(status)}\n\nevent: experts\ndata: ${JSON.stringify({ models: [{ model: "large", layers }] })}\n\n`;
  const page = await open("pebble");
  await page.route("**/v1/moraine/events**", (route) => route.fulfill({ contentType: "text/event-stream", body }));
  await page.goto(`${servers.pebble}#experts`);
  await page.waitForFunction(() => /61 layers with 256 experts/.test(document.querySelector(".lead")?.textContent ?? ""));
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const work = async () => (await session.send("Performance.getMetrics")).metrics.find((m) => m.name === "TaskDuration").value;
  const before = await work(), began = Date.now();
  await page.waitForTimeout(1500);
  console.log(`# drawing it takes ${((100 * (await work() - before) * 1000) / (Date.now() - began)).toFixed(0)} % of a core of the browser`);
  const box = await page.locator(".grid-canvas").boundingBox();
  assert.ok(box.width > 700 && box.height >= 300 && box.height < 620, JSON.stringify(box));
  await picture(page, "experts-large");
});

test("the map is drawn ten times a second between events, and not at all when nothing happens", async () => {
  const layers = [0, 1].map((layer) => ({ layer, places: "1100", used: "3100", missed: "0000" }));
  const status = { version: "test", http: {}, models: [{ id: "small", state: "loaded", experts: 4, experts_used: 2, layers: 2 }] };
  const page = await open("pebble");
  let told = false;
  await page.route("**/v1/moraine/events**", (route) => {
    const tell = !told && route.request().url().includes("experts=1"); // once
    told = told || tell;
    const experts = tell ? `event: experts\ndata: ${JSON.stringify({ models: [{ model: "small", layers }] })}\n\n` : "";
    return route.fulfill({ contentType: "text/event-stream", body: `data: ${JSON.stringify(status)}\n\n${experts}` });
  });
  await page.addInitScript(() => {
    const put = CanvasRenderingContext2D.prototype.putImageData;
    window.drawn = 0;
    CanvasRenderingContext2D.prototype.putImageData = function (...all) {
      window.drawn++;
      return put.apply(this, all);
    };
  });
  await page.clock.install({ time: 0 });
  await page.clock.pauseAt(1000);
  await page.goto("about:blank");
  page.wrong = page.wrong.filter((line) => !line.includes("about:blank"));
  await page.goto(`${servers.pebble}#experts`);
  await page.waitForFunction(() => /2 layers with 4 experts/.test(document.querySelector(".lead")?.textContent ?? ""), null, { polling: 50 });
  const drawnIn = async (milliseconds) => {
    const before = await page.evaluate(() => window.drawn);
    await page.clock.runFor(milliseconds);
    return (await page.evaluate(() => window.drawn)) - before;
  };
  assert.ok((await drawnIn(1000)) >= 10);
  await drawnIn(15_000);
  assert.equal(await drawnIn(3000), 0);
});

test("an expert tells its name, bytes and hits, by mouse and by keys", async () => {
  const page = await open("pebble", { hash: "#experts" });
  await page.waitForSelector(".legend .ram");
  await busy("pebble", 20);
  const words = /blk\.\d+ expert \d+, (on disk|in RAM), 27\.0 KiB; chosen \d+ times, found \d+ times/;
  await page.hover(".grid-canvas", { position: { x: 300, y: 40 } });
  await page.waitForFunction(() => /found/.test(document.querySelector(".tip").textContent));
  assert.match(await page.innerText(".tip"), words);
  await page.mouse.move(5, 5);
  await page.focus(".grid-canvas");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  await page.waitForFunction(() => /blk\.1 expert 0/.test(document.querySelector("#announcements").textContent));
  await page.click(".as-table summary");
  await busy("pebble", 20);
  await page.waitForFunction(() => document.querySelectorAll(".numbers tbody tr").length === 7);
});

test("an expert whose counts cannot be asked for tells what is known", async () => {
  const page = await open("pebble", { hash: "#experts" });
  await page.waitForSelector(".legend .ram");
  await page.route("**/v1/moraine/experts**", (route) => route.abort());
  await page.hover(".grid-canvas", { position: { x: 300, y: 40 } });
  await page.waitForFunction(() => /layer \d+, expert \d+, (on disk|in RAM)/.test(document.querySelector("#announcements").textContent));
  assert.match(await page.innerText(".tip"), /layer \d+, expert \d+, (on disk|in RAM)/);
  page.wrong = page.wrong.filter((line) => !line.includes("ERR_FAILED"));
});

test("the routing of an answer is shown again", async () => {
  const page = await open("pebble");
  await say(page, "Tell me a story about a fox.");
  await page.click("[aria-label='Replay its routing']");
  await page.waitForSelector(".replay .token.now");
  await page.waitForFunction(() => /Token [2-9]/.test(document.querySelector(".replay [role=status]").textContent));
  await page.click(".replay .button");
  await page.focus(".replay input");
  await page.keyboard.press("End");
  const last = /Token (\d+) of (\d+)/.exec(await page.innerText(".replay [role=status]"));
  assert.equal(last[1], last[2]);
  await picture(page, "routing");
});

test("the machine shows plan, wires, tokens, lanes, sessions and the log", async () => {
  const page = await open("sim", { hash: "#machine" });
  await page.waitForSelector(".plan .bar");
  await busy("sim");
  await page.waitForFunction(() => /Device, its own part/.test(document.querySelector(".lanes").textContent));
  assert.deepEqual((await page.locator(".card:has(#plan-title) .bar-title b").allInnerTexts()).map((t) => t.split(",")[0]), ["VRAM", "RAM", "Disk"]);
  assert.equal(await page.locator(".wire").count(), 3);
  assert.match(await page.innerText(".log"), /ready at=http/);
  await page.waitForFunction(() => /prompt tokens?/.test(document.querySelector("[aria-labelledby=sessions-title]").textContent));
  assert.ok((await page.getAttribute(".series-line", "d")).length > 10);
});

test("what if: the sliders agree with moraine plan", async () => {
  for (const server of ["pebble", "sim"]) {
    const page = await open(server, { hash: "#machine" });
    await page.waitForSelector("#if-ram");
    const answer = (query) => page.waitForFunction((q) => document.querySelector(".what-if .plan").dataset.query?.includes(q) && !document.querySelector(".what-if[aria-busy]"), query);
    await page.focus("#if-parallel");
    await page.keyboard.press("Home");
    await answer("parallel=1");
    await page.focus("#if-batch");
    await page.keyboard.press("Home"); // the plan chooses one by itself, which may be any
    await answer(`batch=${await page.innerText("#if-batch + output")}`);
    for (const [slider, key] of [["ram", "PageUp"], ["ram", "PageDown"], ["ram", "PageDown"], ["ctx", "Home"], ...(server === "sim" ? [["vram", "PageDown"], ["vram", "PageUp"]] : [])]) {
      const old = await page.getAttribute(".what-if .plan", "data-query");
      await page.focus(`#if-${slider}`);
      await page.keyboard.press(key);
      await page.waitForFunction((q) => document.querySelector(".what-if .plan").dataset.query !== q && !document.querySelector(".what-if[aria-busy]"), old);
      const asked = new URLSearchParams(await page.getAttribute(".what-if .plan", "data-query"));
      const { stdout } = await run(process.env.MO_PROGRAM, ["plan", "--json", "--ram", asked.get("ram"), "--ctx", asked.get("ctx"), "--batch", asked.get("batch"), "--device", ...(asked.has("vram") ? ["sim", "--vram", asked.get("vram")] : ["none"])]);
      const plan = JSON.parse(stdout);
      const shown = Number(await page.getAttribute(".what-if .plan", "data-speed"));
      assert.ok(Math.abs(shown / plan.tokens_per_second - 1) < 1e-9, `${server} ${asked}: ${shown} and ${plan.tokens_per_second}; ${await page.innerText(".what-if .plan")}`);
    }
    await page.focus("#if-parallel");
    await page.keyboard.press("End");
    await page.focus("#if-ram");
    await page.keyboard.press("Home");
    await page.waitForSelector(".what-if .fault");
    page.wrong = page.wrong.filter((line) => !line.includes("400")); // a refused plan, which the browser notes
    assert.match(await page.innerText(".what-if .fault"), /are needed/);
  }
});

test("profiles are learned, kept, compared and applied", async () => {
  const page = await open("pebble", { hash: "#profile" });
  await page.waitForSelector("#mode");
  await busy("pebble", 40);
  await page.waitForFunction(() => /choices counted in 7 layers/.test(document.querySelector(".lead").textContent));
  await page.click("text=Keep for comparing");
  await page.click("text=Begin anew");
  await page.waitForSelector("text=Counting begins anew");
  await page.waitForFunction(() => /Nothing has been counted/.test(document.querySelector(".lead").textContent));
  await busy("pebble", 60);
  await page.waitForSelector(".pair .grid-canvas");
  await page.waitForFunction(() => /would serve \d/.test(document.querySelector(".cover")?.textContent ?? ""));
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("text=Save as a file")]);
  await page.setInputFiles(".compare input[type=file]", await file.path());
  await page.waitForFunction(() => document.querySelectorAll("#compare-b option").length === 3);
  await page.click("button:text-is('Apply')");
  await page.waitForFunction(() => /Applied: \d+ of \d+/.test(document.querySelector(".data-view > [role=status]").textContent));
  await page.click(".as-table summary");
  assert.equal(await page.locator(".as-table tbody tr").count(), 7);
});

test("the cards of the machine leave no hole, from a phone to a wide screen", async () => {
  const page = await open("sim", { hash: "#machine" });
  await page.waitForSelector(".what-if .bar");
  for (const width of [390, 899, 900, 1280, 1899, 1900, 2560, 3840]) {
    await page.setViewportSize({ width, height: 1000 });
    const holes = await page.evaluate(() => {
      const all = document.querySelector(".cards").getBoundingClientRect(), rows = new Map(), gap = 16;
      for (const c of document.querySelectorAll(".card")) {
        const box = c.getBoundingClientRect();
        rows.set(Math.round(box.top), [...(rows.get(Math.round(box.top)) ?? []), box]);
      }
      return [...rows.values()].filter((row) => {
        const filled = row.reduce((sum, box) => sum + box.width + gap, -gap);
        return Math.abs(filled - all.width) > 2 || row.some((box) => Math.abs(box.height - row[0].height) > 2);
      }).length;
    });
    assert.equal(holes, 0, `${width} pixels wide`);
  }
});

// Every view with something to show, looked at by axe-core, and its picture kept.
for (const [name, options] of [["light", {}], ["dark", { dark: true }], ["narrow", { width: 390, height: 780, dark: true, hasTouch: true }]]) {
  test(`pictures, ${name}: nothing is too wide, and axe-core finds no serious fault`, async () => {
    for (const view of ["chat", "experts", "machine", "profile"]) {
      const page = await open("sim", { hash: `#${view}`, ...options, bypassCSP: true });
      if (view === "chat") {
        await say(page, "Tell me a story about a fox.");
      } else {
        await page.waitForSelector(view === "machine" ? ".what-if .bar" : ".grid-canvas");
        await busy("sim", 60);
      }
      await page.waitForTimeout(300);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${view} is ${wide} pixels too wide`);
      await picture(page, `${view}-${name}`);
      if (name === "light") { // and on a large screen
        await page.setViewportSize({ width: 2560, height: 1200 });
        assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${view} is too wide`);
        await picture(page, `${view}-wide`);
        await page.setViewportSize({ width: 1280, height: 800 });
      }
      if (view === "chat") {
        await page.click("[aria-label='Settings of this conversation']");
        await page.waitForSelector("#set-system");
      }
      await page.addScriptTag({ path: axe });
      const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      const serious = found.violations.filter((v) => ["serious", "critical"].includes(v.impact));
      assert.deepEqual(serious.map((v) => `${view}: ${v.id}: ${v.nodes.map((n) => n.target.join(" ")).slice(0, 4)}`), []);
      assert.deepEqual(page.wrong, []);
      await page.context().close();
    }
  });
}

test("a server that goes away and comes back", async () => {
  const page = await open("pebble", { hash: "#experts" });
  await page.waitForSelector(".legend .ram");
  await page.route("**/v1/moraine/events**", (route) => route.abort());
  await page.goto(`${servers.pebble}#machine`);
  await page.waitForSelector(".away");
  await page.unroute("**/v1/moraine/events**");
  await page.waitForSelector("html:not(.away)");
  await page.waitForSelector(".plan .bar");
  page.wrong = page.wrong.filter((line) => !line.includes("ERR_FAILED"));
});

// A page left open with the map live must neither grow nor slow. MO_SOAK: minutes; without it a short form. What was measured is
// written to soak.txt beside the pictures, once a minute, as it goes.
test("a page that is left open does not grow", async () => {
  const page = await open("pebble", { hash: "#experts" });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" }); // of a core, whatever else runs here
  const measure = async () => {
    await session.send("HeapProfiler.collectGarbage");
    const { metrics } = await session.send("Performance.getMetrics");
    const value = (name) => metrics.find((m) => m.name === name).value;
    return { heap: value("JSHeapUsedSize"), nodes: value("Nodes"), listeners: value("JSEventListeners"), work: value("TaskDuration") };
  };
  // All views, and the page's own work in milliseconds of a core for it.
  const round = async () => {
    const before = (await measure()).work;
    for (const view of ["machine", "profile", "chat", "experts"]) {
      await page.evaluate((hash) => (location.hash = hash), view);
      await busy("pebble", 60);
      await page.waitForTimeout(400);
    }
    const now = await measure();
    return { ...now, work: (now.work - before) * 1000 };
  };
  const minutes = Number(process.env.MO_SOAK ?? 0);
  for (let i = 0; i < 3; i++) {
    await round();
  }
  const begun = Date.now(), rounds = [];
  const line = (r) => `# after ${String(Math.round((Date.now() - begun) / 60_000)).padStart(2)} minutes, ${rounds.length} rounds: heap ${(r.heap / 1e6).toFixed(2)} MB, ${r.nodes} nodes, ${r.listeners} listeners; a round took ${r.work.toFixed(0)} ms of a core`;
  const kept = minutes > 0 ? [] : null;
  for (let i = 0; i < 5 || Date.now() < begun + minutes * 60_000; i++) {
    rounds.push(await round());
    if (kept && Date.now() >= begun + kept.length * 60_000) {
      kept.push(line(rounds.at(-1)));
      writeFileSync(`${pictures}/../soak.txt`, `${kept.join("\n")}\n`);
    }
  }
  const some = Math.max(2, Math.floor(rounds.length / 10));
  const median = (list) => list.map((r) => r.work).sort((a, b) => a - b)[Math.floor(list.length / 2)];
  const first = rounds[0], last = rounds.at(-1), early = median(rounds.slice(0, some)), late = median(rounds.slice(-some));
  console.log(line(first).replace(/after.*rounds/, "first"));
  console.log(line(last));
  console.log(`# median of the first ${some} rounds ${early.toFixed(0)} ms of a core, of the last ${some} ${late.toFixed(0)}`);
  assert.ok(last.heap < first.heap + 1.5e6, "the heap grew");
  assert.ok(last.nodes < first.nodes + 400 && last.listeners < first.listeners + 60, "elements or listeners stay");
  assert.ok(!kept || late < 1.5 * early, "it became slower");
});

await main();
