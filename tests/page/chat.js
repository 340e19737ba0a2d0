// chat.js: conversations in a real browser.
import { readFileSync } from "node:fs";
import { answered, assert, conversation, feed, halted, importFile, inSlices, main, open, picture, say, servers, test } from "./check.js";

test("a conversation of two turns, with its cost", async () => {
  const page = await open("pebble");
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
  console.log(`# first paint ${paint.toFixed(0)} ms after the page was asked for`);
  const first = await say(page, "Tell me a story about a fox.");
  assert.ok(first.length > 40, first);
  assert.match(await page.innerText(".message.assistant .note"), /pebble · \d+ tokens · [\d.,]+ tokens\/s · \d+ of \d+ prompt tokens from the cache/);
  await say(page, "And another one about a hare.");
  assert.equal(await page.locator(".message").count(), 4);
  const cached = /(\d+) of (\d+) prompt/.exec(await page.innerText(".message.assistant:last-child .note"));
  assert.ok(Number(cached[1]) > 20, `cached ${cached[1]}`);
});

test("an answer is shown while it is made; stopped it stays", async () => {
  const page = await open("calls");
  await page.fill("#message", "hello");
  await page.press("#message", "Enter");
  const length = () => document.querySelector(".message.assistant.running .prose")?.textContent.length ?? 0;
  const some = await (await page.waitForFunction(length)).jsonValue();
  await page.waitForFunction((n) => document.querySelector(".message.assistant .prose").textContent.length > n, some);
  await halted("calls", () => page.click("[aria-label=Stop]"));
  const text = await answered(page);
  assert.ok(text.startsWith("Man") && text.length > some && text.length < 4500, text.length);
  assert.match(await page.innerText(".message.assistant .note"), /stopped/);
});

test("an edit makes a branch, and both can be shown", async () => {
  const page = await open("scripted");
  await say(page, "hello");
  await page.hover(".message.user");
  await page.click(".message.user [aria-label=Edit]");
  await page.fill(".edit-field", "@markdown instead");
  await page.click("text=Send as new branch");
  await page.waitForSelector("math");
  assert.equal(await page.innerText(".message.user .branches"), "2/2");
  await page.click(".message.user [aria-label='Previous version']");
  assert.equal(await page.innerText(".message.user .said"), "hello");
  assert.match(await page.innerText(".message.assistant .prose"), /Hello there/);
});

test("another answer and a continued one", async () => {
  const page = await open("pebble");
  await page.click("[aria-label='Conversation settings']");
  await page.fill("#set-max_tokens", "8");
  await page.press("#set-max_tokens", "Escape");
  const first = await say(page, "Tell me a story about a fox.");
  assert.match(await page.innerText(".message.assistant .note"), /token limit reached/);
  await page.click("[aria-label='Continue']");
  await page.waitForFunction((n) => document.querySelector(".message.assistant .prose").textContent.length > n && document.querySelector(".message.assistant .note"), first.length);
  const more = await answered(page);
  assert.ok(more.startsWith(first.trimEnd()), `${first} | ${more}`);
  await page.click("[aria-label='Regenerate']");
  await page.waitForSelector(".message.assistant .branches");
  assert.equal(await page.innerText(".message.assistant .branches"), "2/2");
});

test("an edited answer is gone on with, and in place what follows stays", async () => {
  const page = await open("pebble");
  await page.click("[aria-label='Conversation settings']");
  await page.fill("#set-max_tokens", "12");
  await page.press("#set-max_tokens", "Escape");
  await say(page, "Tell me a story about a fox.");
  await say(page, "Go on.");
  await page.hover(".message.assistant");
  await page.click(".message.assistant >> nth=0 >> [aria-label=Edit]");
  await page.fill(".edit-field", "There was a hare.");
  await page.click("text=Save without sending");
  assert.equal(await page.locator(".message").count(), 4);
  assert.match(await page.innerText(".message.assistant >> nth=0 >> .prose"), /There was a hare/);
  await page.click(".message.assistant >> nth=0 >> [aria-label=Edit]");
  await page.fill(".edit-field", "Once upon a time");
  await page.click("text=Save and continue");
  await answered(page);
  assert.equal(await page.locator(".message").count(), 2);
  assert.match(await page.innerText(".message.assistant .prose"), /^Once upon a time.+/);
});

test("a reload keeps the conversation, and search finds it", async () => {
  const page = await open("scripted");
  assert.match(await say(page, "hello marmot"), /Hello there/);
  await page.reload(); // at once
  await page.waitForSelector(".message.assistant .note");
  assert.equal(await page.innerText(".message.user .said"), "hello marmot");
  await page.click("text=New conversation");
  await page.fill("[type=search]", "MARMOT there");
  assert.equal(await page.locator(".conversation").count(), 1);
  await page.fill("[type=search]", "badger");
  assert.equal(await page.locator(".conversation").count(), 0);
});

test("a message that is sent before the page is ready is answered and kept", async () => {
  const page = await open("scripted", { hash: "#profile" });
  await page.route("**/v1/models", async (route) => {
    await page.waitForSelector(".message.user");
    await route.continue();
  });
  await page.goto("about:blank");
  page.wrong = page.wrong.filter((line) => !line.includes("about:blank"));
  await page.goto(servers.scripted);
  await say(page, "hello marmot");
  await page.waitForSelector("#model option", { state: "attached" });
  assert.equal(await page.innerText(".message.user .said"), "hello marmot");
});

test("what was exported is imported", async () => {
  const page = await open("scripted");
  await say(page, "hello marmot");
  await page.waitForTimeout(600);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("text=Export all")]);
  const file = await download.path();
  const [text] = await Promise.all([page.waitForEvent("download"), page.click("[aria-label='Export hello marmot']")]);
  assert.match(text.suggestedFilename(), /hello marmot\.md$/);
  assert.match(readFileSync(await text.path(), "utf8"), /hello marmot[^]*Hello there, friend\./);
  const other = await open("scripted");
  await other.waitForSelector(".welcome");
  await other.setInputFiles(".sidebar-foot input", file);
  await other.click(".conversation");
  assert.equal(await other.innerText(".message.user .said"), "hello marmot");
  await other.setInputFiles(".sidebar-foot input", { name: "x.json", mimeType: "application/json", buffer: Buffer.from('{"a": 1}') });
  await other.waitForSelector(".sidebar .fault:not([hidden]):has-text('not a file of exported conversations')");
});

test("what is damaged in a file is refused or left out, and what is newer here stays", async () => {
  const page = await open("scripted");
  await page.waitForSelector(".welcome");
  const odd = conversation("odd", "fine");
  Object.assign(odd.messages.a, { attachments: 5, calls: [{ id: 1 }, null], cost: { tokens: "x" }, thought: {}, ended: "x", error: ["e"], model: 7, onload: "x" });
  Object.assign(odd.messages.q, { attachments: [{ name: "n", text: 3 }, { name: "good.txt", text: "t" }], parent: "constructor" });
  await importFile(page, [odd, conversation("same", '![first & "last"](https://elsewhere.example/x.png)', { changed: 10, leaf: "__proto__" })]);
  await page.click("text=about odd");
  assert.equal(await page.innerText(".message.assistant .prose"), "fine");
  assert.match(await page.innerText(".attachment"), /good\.txt/);
  assert.equal(await page.locator(".call, .message .fault").count(), 0);
  await page.click("text=about same");
  assert.equal(await page.innerText(".message.assistant .prose"), 'first & "last"');
  await importFile(page, [conversation("same", "older", { changed: 9 })]);
  await page.waitForSelector(".sidebar .fault:has-text('nothing in it is newer')");
  assert.equal(await page.innerText(".message.assistant .prose"), 'first & "last"');
  await importFile(page, [conversation("same", "newer", { changed: 11 })]);
  await page.waitForSelector(".message.assistant .prose:has-text('newer')");
  const ring = conversation("ring", "x");
  ring.messages.q.parent = "a";
  const roles = conversation("roles", "x");
  roles.messages.a.role = "system";
  for (const [bad, words] of [[ring, "form a cycle"], [roles, "a message in the file is damaged"], [{ id: "none" }, "a conversation in the file is damaged"], [null, "is damaged"]]) {
    await importFile(page, [conversation("good", "x"), bad]);
    await page.waitForSelector(`.sidebar .fault:not([hidden]):has-text('${words}')`);
  }
  assert.equal(await page.locator(".conversation").count(), 2);
});

test("an answer that cannot be read as Markdown is shown as text, beside the others", async () => {
  const page = await open("scripted");
  await page.waitForSelector(".welcome");
  const deep = conversation("deep", `${">".repeat(5000)} bottom`);
  const lines = (text) => `${text.repeat(7000)}\n`.repeat(3);
  deep.messages.q2 = { id: "q2", parent: "a", role: "user", text: "and", created: 3 };
  deep.messages.a2 = { id: "a2", parent: "q2", role: "assistant", text: `$$${lines("{")}x${lines("}")}$$\n\nand *stress* and $\\frac{a}{b}$`, created: 4, ended: "stop" };
  await importFile(page, [{ ...deep, leaf: "a2" }]);
  await page.click("text=about deep");
  for (const again of [false, true]) {
    if (again) {
      await page.waitForTimeout(600); // until it is kept
      await page.reload();
    }
    await page.waitForSelector("[data-id=a2] .math mfrac");
    assert.match(await page.innerText("[data-id=a] .plain"), /^>{5000} bottom$/);
    assert.equal(await page.innerText("[data-id=a2] em"), "stress");
    assert.ok((await page.locator("[data-id=a2] .math").first().innerText()).startsWith("{{{"));
  }
  await importFile(page, [conversation("levels", `${"> ".repeat(300)}bottom`)]);
  await page.click("text=about levels");
  assert.match(await page.innerText("[data-id=a] .prose"), /bottom/);
});

test("text that is made of openings is read in bounded time", async () => {
  const page = await open("scripted");
  await page.waitForSelector(".welcome");
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" }); // of a core, whatever else runs here
  const work = async () => (await session.send("Performance.getMetrics")).metrics.find((m) => m.name === "TaskDuration").value;
  for (const [i, mark] of ["***a ", "_a ", "[a](", "|a"].entries()) {
    await importFile(page, [conversation(`bad${i}`, `*well* said\n\n${`${mark.repeat(8000 / mark.length)}\n`.repeat(7)}`)]);
    const before = await work();
    await page.click(`text=about bad${i}`);
    await page.waitForSelector(`.message.assistant .prose:has(em:text-is("well"))`);
    const took = (await work()) - before;
    assert.ok(took < 4, `${mark}: ${took.toFixed(1)} s of a core`);
  }
  await importFile(page, [conversation("line", `*well* said\n\n${"*a ".repeat(20_000)}`), conversation("long", `${"Words of *stress* are here. ".repeat(250)}\n`)]);
  await page.click("text=about line");
  assert.match(await page.innerText(".message.assistant .plain"), /^\*well\* said\s+\*a \*a/);
  await page.click("text=about long");
  assert.equal(await page.locator(".message.assistant em").count(), 250);
});

test("tabs, definitions and open fences of a growing answer move nothing", async () => {
  const page = await open("scripted");
  const answer = await feed(page);
  const code = "all:\n\tcc -c a.c\n\n\tcc -c b.c";
  await answer.give("[a]: https://elsewhere.example/\n\nLook:\n\n```make\nall:\n\tcc -c a.c\n\n\tcc", "cc");
  assert.equal(await page.locator(".prose pre").count(), 1);
  await answer.give(" -c b.c\n```\n\nIt costs $$ here.\n\nThen one.\n\nThen tw", "Then tw");
  await answer.give("o and three.\n\nLast", "Last");
  const blocks = async () => (await page.evaluate(() => [...document.querySelectorAll(".prose > p, .prose code")].map((e) => e.textContent.trim().replace(/\s+\$/, " $")))).sort();
  const wanted = ["Look:", code, "It costs $$ here.", "Then one.", "Then two and three.", "Last"].sort();
  assert.deepEqual(await blocks(), wanted);
  await answer.end();
  assert.deepEqual(await blocks(), wanted);
});

test("Escape stops wherever the focus is, and first closes what is open", async () => {
  const page = await open("scripted");
  const answer = await feed(page);
  await answer.give("Some words", "words");
  await page.click("[aria-label='Conversation settings']");
  await page.waitForSelector("#set-system");
  await page.press("#set-system", "Escape");
  await page.waitForSelector("#set-system", { state: "detached" });
  assert.equal(await page.locator(".message.running").count(), 1);
  await page.focus(".thread");
  await page.keyboard.press("Escape");
  assert.equal(await answered(page), "Some words");
  assert.match(await page.innerText(".message.assistant .note"), /stopped/);
});

test("Markdown with hostile HTML stays harmless", async () => {
  const page = await open("scripted");
  let dialogs = 0;
  page.on("dialog", (d) => (dialogs++, d.dismiss()));
  await say(page, "@hostile");
  await page.waitForTimeout(300);
  const prose = page.locator(".message.assistant .prose");
  assert.match(await prose.innerText(), /<img src=x onerror=/);
  assert.equal(await prose.locator("img, script, iframe, style, form, svg, object, [onerror], [onclick], [style], [href^='javascript']").count(), 0);
  for (const link of await prose.locator("a[href]").all()) {
    assert.match(await link.getAttribute("href"), /^https?:/);
    assert.match(await link.getAttribute("rel"), /noopener/);
  }
  assert.equal(dialogs, 0);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
});

test("Markdown, code with colours and a copy button, mathematics", async () => {
  const page = await open("scripted", { permissions: ["clipboard-read", "clipboard-write"] });
  await say(page, "@markdown");
  await page.waitForSelector(".prose math mfrac");
  await page.waitForSelector(".prose .hljs-keyword");
  assert.equal(await page.innerText(".prose h2"), "A heading");
  assert.equal(await page.locator(".prose table td").count(), 2);
  await page.click("[aria-label='Copy code']");
  assert.equal((await page.evaluate(() => navigator.clipboard.readText())).trim(), "def f(x):\n    return x + 1");
  await picture(page, "markdown");
});

test("code has its colours while it grows, by every name of a language, and lines of a normal height", async () => {
  const page = await open("scripted");
  const answer = await feed(page);
  await answer.give("```python\nfirst = 1\n```\n\nwords\n\n", "words");
  await page.waitForSelector(".prose .hljs-number");
  await answer.give("```console\n$ ls\n```\n\n```python3\ndef second():\n    return None", "None");
  await page.waitForSelector(".message.running .code:last-child .hljs-keyword");
  await answer.give("\n```\n\n```cuda\nint x = 1;\n```\n\n```tsx\nconst y = 2;\n```\n", "const y = 2;\n".trimEnd());
  await answer.end();
  await page.waitForFunction(() => [...document.querySelectorAll(".prose code[data-language]")].every((code) => code.querySelector("[class^=hljs]")));
  const ratio = await page.evaluate(() => {
    const pre = [...document.querySelectorAll(".prose pre")].find((x) => x.textContent.includes("second")), style = getComputedStyle(pre);
    const lines = pre.textContent.trimEnd().split("\n").length, type = parseFloat(getComputedStyle(pre.querySelector("code")).fontSize);
    return (pre.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)) / lines / type;
  });
  assert.ok(ratio > 1.3 && ratio < 1.55, `lines are ${ratio.toFixed(2)} times as high as the type`);
  await picture(page, "code");
});

test("thoughts are folded, calls are shown and get a result", async () => {
  const page = await open("calls");
  await page.click("[aria-label='Conversation settings']");
  await page.fill("#set-tools", JSON.stringify([{ type: "function", function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } } }]));
  await page.press("#set-tools", "Escape");
  await say(page, "@call the weather");
  assert.match(await page.innerText(".call"), /get_weather[^]*Bern/);
  assert.equal(await page.locator(".thought[open]").count(), 0);
  await page.click(".thought summary");
  assert.match(await page.innerText(".thought-text"), /look/);
  await page.fill(".call-result textarea", "sunny");
  await page.click("text=Submit result");
  await page.waitForFunction(() => document.querySelectorAll(".message").length === 4);
  assert.match(await answered(page), /sunny in Bern/);
});

test("files are added as text", async () => {
  const page = await open("pebble");
  await page.setInputFiles(".composer input[type=file]", [{ name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("a hare\n") }, { name: "x.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0, 1, 2]) }]);
  await page.waitForSelector(".chip");
  assert.match(await page.innerText(".chips"), /notes\.txt[^]*x\.bin is not a text file/);
  const [request] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), say(page, "What is this?")]);
  assert.match(request.postDataJSON().messages[0].content, /notes\.txt:\n```\na hare\n```\n\nWhat is this\?/);
});

const PHOTO = readFileSync(`${process.env.MO_DATA}/pictures/photo-61x37.png`);
const photo = { name: "photo.png", mimeType: "image/png", buffer: PHOTO };

test("files that cannot be read are said to be so", async () => {
  const page = await open("sees");
  const input = page.locator(".composer input[type=file]");
  await page.waitForSelector("[aria-label='Attach text files or pictures']");
  await page.evaluate(() => {
    File.prototype.text = () => Promise.reject(new DOMException("gone", "NotFoundError"));
    FileReader.prototype.readAsDataURL = function () {
      setTimeout(() => this.onerror());
    };
  });
  for (const file of [photo, { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("a hare\n") }]) {
    await input.setInputFiles([file]);
    await page.waitForSelector(`.chips .fault:text-is('${file.name} cannot be read')`);
    await page.waitForFunction(() => document.querySelector(".composer input[type=file]").value === "");
  }
  assert.equal(await page.locator(".chip").count(), 0);
});

// What the page would have of files that were dropped or pasted.
function transfer(page, ...files) {
  return page.evaluateHandle((list) => {
    const data = new DataTransfer();
    for (const { name, type, base64 } of list) {
      data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], name, { type }));
    }
    return data;
  }, files.map((f) => ({ name: f.name, type: f.mimeType, base64: f.buffer.toString("base64") })));
}

test("a picture is attached, sent and shown", async () => {
  const page = await open("sees");
  await page.waitForSelector("[aria-label='Attach text files or pictures']");
  await page.setInputFiles(".composer input[type=file]", [photo, { name: "x.tiff", mimeType: "image/tiff", buffer: Buffer.from("II*\0") }, { name: "n.txt", mimeType: "text/plain", buffer: Buffer.from("a hare\n") }]);
  await page.waitForSelector(".chip:has-text('n.txt')");
  assert.equal(await page.locator(".picture-chip").count(), 1);
  const [request] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), say(page, "What is this?")]);
  const [first, second] = request.postDataJSON().messages[0].content;
  assert.deepEqual(first, { type: "image_url", image_url: { url: `data:image/png;base64,${PHOTO.toString("base64")}` } });
  assert.match(second.text, /n\.txt:\n```\na hare\n```\n\nWhat is this\?/);
  const rows = Number(/of (\d+) prompt tokens/.exec(await page.innerText(".message.assistant .note"))[1]);
  assert.ok(rows > 8, rows);
  assert.equal(await page.locator(".picture-chip").count(), 0);
  const shown = page.locator(".message.user .picture img");
  assert.deepEqual(await shown.evaluate((i) => [i.complete, i.naturalWidth, i.naturalHeight, i.alt]), [true, 61, 37, "Picture photo.png"]);
  await page.click(".message.user .picture");
  assert.equal(await page.getAttribute(".message.user .picture", "aria-pressed"), "true");
  await picture(page, "a-picture");
  const [next] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), say(page, "And now?")]);
  assert.equal(next.postDataJSON().messages[0].content[0].image_url.url, first.image_url.url);
  await page.waitForTimeout(600);
  await page.reload();
  await page.waitForFunction(() => document.querySelector(".message.user .picture img")?.naturalWidth === 61);
  await page.hover(".message.user >> nth=0");
  await page.click(".message.user >> nth=0 >> [aria-label=Edit]");
  await page.fill(".edit-field", "Another question");
  const [edited] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), page.click("text=Send as new branch")]);
  assert.equal(edited.postDataJSON().messages[0].content[0].image_url.url, first.image_url.url);
  await answered(page);
});

test("pictures are dropped and pasted, and can be removed", async () => {
  const page = await open("sees");
  await page.waitForSelector("[aria-label='Attach text files or pictures']");
  const dropped = await transfer(page, photo);
  await page.dispatchEvent(".thread", "dragover", { dataTransfer: dropped });
  assert.match(await page.evaluate(() => getComputedStyle(document.querySelector(".dropping"), "::after").content), /pictures/);
  await page.dispatchEvent(".thread", "drop", { dataTransfer: dropped });
  await page.waitForSelector(".picture-chip");
  const pasted = await transfer(page, { ...photo, name: "image.png" });
  await page.evaluate((data) => document.querySelector("#message").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })), pasted);
  await page.waitForFunction(() => document.querySelectorAll(".picture-chip").length === 2);
  await picture(page, "pictures-attached");
  await page.click("[aria-label='Remove photo.png']");
  const both = await transfer(page, photo); // as a table is copied: the text is what is wanted
  await page.evaluate((data) => {
    data.setData("text/plain", "1\t2");
    document.querySelector("#message").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  }, both);
  assert.equal(await page.locator(".picture-chip").count(), 1);
  const [request] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), page.press("#message", "Enter").then(() => answered(page))]);
  assert.deepEqual(request.postDataJSON().messages[0].content.map((p) => p.type), ["image_url"]);
  assert.equal(await page.innerText(".chat-title"), "image.png");
});

test("where no pictures are read, none are offered", async () => {
  const page = await open("scripted");
  await page.waitForSelector("#model option", { state: "attached" });
  assert.equal(await page.locator("[aria-label='Attach text files']").count(), 1);
  await page.setInputFiles(".composer input[type=file]", [photo]);
  await page.waitForSelector(".chips .fault");
  assert.match(await page.innerText(".chips"), /photo\.png is a picture, which this model does not read/);
  assert.equal(await page.locator(".picture-chip").count(), 0);
});

test("pictures of an imported file are shown only from the file", async () => {
  const page = await open("scripted");
  await page.waitForSelector(".welcome");
  const with_pictures = conversation("seen", "fine");
  with_pictures.messages.q.pictures = [{ name: "here", url: `data:image/png;base64,${PHOTO.toString("base64")}` }, { name: "there", url: "https://elsewhere.example/x.png" }, { name: "odd", url: "data:text/html;base64,AAAA" }, { name: 5, url: 6 }];
  await importFile(page, [with_pictures]);
  await page.click("text=about seen");
  await page.waitForFunction(() => document.querySelector(".picture img")?.naturalWidth === 61);
  assert.equal(await page.locator(".picture").count(), 1);
});

test("files are dropped as text", async () => {
  const page = await open("pebble");
  const files = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(["a hare\n"], "notes.txt", { type: "text/plain" }));
    data.items.add(new File(["b"], "more.md"));
    return data;
  });
  await page.dispatchEvent(".thread", "dragover", { dataTransfer: files });
  assert.equal(await page.locator(".dropping").count(), 1);
  await page.dispatchEvent(".thread", "drop", { dataTransfer: files });
  await page.waitForFunction(() => document.querySelectorAll(".chip").length === 2);
  assert.equal(await page.locator(".dropping").count(), 0);
  const [request] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), say(page, "What is this?")]);
  assert.match(request.postDataJSON().messages[0].content, /notes\.txt:\n```\na hare\n```[^]*more\.md:[^]*What is this\?/);
});

test("the model is chosen for each conversation", async () => {
  const page = await open("scripted");
  await page.waitForSelector("#model option", { state: "attached" });
  assert.deepEqual(await page.locator("#model option").allInnerTexts(), ["scripted", "calls"]);
  assert.match(await say(page, "hello"), /Hello there/);
  await page.click("text=New conversation");
  await page.selectOption("#model", "calls");
  assert.match(await say(page, "sunny"), /sunny in Bern/);
  assert.match(await page.innerText(".message.assistant .note"), /^calls/);
  await page.click(".conversation:has-text('hello')");
  assert.equal(await page.inputValue("#model"), "scripted");
  await page.reload();
  await page.click("text=New conversation");
  await page.waitForFunction(() => document.querySelector("#model").value === "calls"); // the latest choice
});

test("system text and sampling of a conversation reach the server, and another has its own", async () => {
  const page = await open("pebble");
  await page.click("[aria-label='Conversation settings']");
  await page.fill("#set-system", "You are a marmot.");
  await page.fill("#set-temperature", "0");
  await page.fill("#set-max_tokens", "4");
  await page.press("#set-max_tokens", "Escape");
  const [request] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), say(page, "Hello")]);
  const body = request.postDataJSON();
  assert.deepEqual([body.messages[0], body.temperature, body.max_tokens], [{ role: "system", content: "You are a marmot." }, 0, 4]);
  await page.click("text=New conversation");
  await page.click("[aria-label='Conversation settings']");
  assert.equal(await page.inputValue("#set-system"), "");
});

// The page once more, from a server that says which models it has only when the function that this gives is called.
async function reloadHeld(page) {
  let release;
  const held = new Promise((done) => (release = done));
  await page.route("**/v1/models", (route) => held.then(() => route.continue()));
  await page.reload({ waitUntil: "commit" });
  return release;
}

test("a conversation that is begun while the page begins stays", async () => {
  const page = await open("scripted");
  await say(page, "hello");
  const release = await reloadHeld(page);
  await page.click("text=New conversation");
  release();
  await page.waitForSelector("#model option", { state: "attached" });
  assert.equal(await page.locator(".message").count(), 0);
  assert.match(await say(page, "hello again"), /Hello there/);
  await page.waitForFunction(() => document.querySelectorAll(".conversation").length === 2);
});

test("settings that are asked for while the page begins are opened when it has begun", async () => {
  const page = await open("pebble");
  const release = await reloadHeld(page);
  await page.click("[aria-label='Conversation settings']");
  release();
  await page.fill("#set-system", "You are a marmot.");
  await page.waitForSelector("#model option", { state: "attached" });
  assert.equal(await page.inputValue("#set-system"), "You are a marmot.");
});

test("the prompt's progress is shown", async () => {
  const page = await open("pebble");
  await page.waitForSelector("#model option", { state: "attached" });
  await page.evaluate(() => new MutationObserver(() => (window.progress = window.progress || document.querySelector(".progress")?.textContent)).observe(document.body, { childList: true, subtree: true }));
  await page.fill("#message", "The fox saw the hare and went home again. ".repeat(160));
  await page.press("#message", "Enter");
  await inSlices("pebble", page, () => page.evaluate(() => window.progress));
  assert.match(await page.evaluate(() => window.progress), /Reading prompt: [\d,]+ of [\d,]+ tokens/);
  await answered(page);
});

test("the prompt's progress says how long it will take", async () => {
  const page = await open("scripted");
  const answer = await feed(page);
  const progress = async (processed, time_ms) => {
    await page.evaluate((p) => window.tell({ prompt_progress: p }), { total: 9000, cache: 1000, processed, time_ms });
    await page.waitForFunction((n) => document.querySelector("progress")?.value === n, processed);
    return page.innerText(".progress");
  };
  assert.equal(await progress(2000, 100), "Reading prompt: 2,000 of 9,000 tokens"); // too early to tell
  assert.equal(await progress(5000, 2000), "Reading prompt: 5,000 of 9,000 tokens, about 2 s left");
  assert.equal(await progress(8000, 838_000), "Reading prompt: 8,000 of 9,000 tokens, about 2 min left");
  await answer.give("Then words", "words");
  assert.equal(await page.locator("progress").count(), 0);
  await answer.end();
});

test("a key is asked for, and kept for the next request", async () => {
  const page = await open("locked");
  await page.waitForSelector("dialog");
  await page.fill("#key", "wrong");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=not accepted");
  await page.fill("#key", "secret");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#model option", { state: "attached" });
  await say(page, "Hello");
  await page.reload();
  await page.waitForSelector("#model option", { state: "attached" });
  page.wrong = page.wrong.filter((line) => !line.includes("401")); // the browser notes each
});

test("after Not now the page does not ask by itself, but when something is sent", async () => {
  const page = await open("locked");
  await page.click("dialog >> text=Not now");
  for (let i = 0; i < 2; i++) {
    await page.waitForResponse((r) => r.url().includes("/v1/moraine/events") && r.status() === 401);
  }
  assert.equal(await page.locator("dialog, .away").count(), 0);
  await page.fill("#message", "Hello");
  await page.press("#message", "Enter");
  await page.fill("#key", "secret");
  await page.keyboard.press("Enter");
  await answered(page);
  await page.waitForSelector("#model option:text-is('pebble')", { state: "attached" });
  page.wrong = page.wrong.filter((line) => !line.includes("401")); // the browser notes each
});

// Walks to what has this label, or this text.
async function reach(page, label, back) {
  for (let i = 0; i < 60; i++) {
    const now = await page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent);
    if (now === label) {
      return;
    }
    await page.keyboard.press(back ? "Shift+Tab" : "Tab");
  }
  assert.fail(`${label} cannot be reached`);
}

test("keyboard alone suffices", async () => {
  const page = await open("scripted");
  await page.waitForFunction(() => document.activeElement?.id === "message");
  await page.keyboard.type("hello one");
  await page.keyboard.press("Enter");
  await answered(page);
  await page.waitForFunction(() => document.activeElement?.id === "message");
  await reach(page, "Edit", true);
  await page.keyboard.press("Enter");
  await page.keyboard.type(" and more");
  await page.keyboard.press("Escape");
  await reach(page, "Conversation settings", true);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#set-system");
  await page.keyboard.type("Be brief.");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.activeElement?.getAttribute("aria-label") === "Conversation settings");
  await page.keyboard.press("Alt+n");
  await page.waitForSelector(".welcome");
  await reach(page, "hello onejust now", true);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".message.user");
});

test("by the keyboard alone an answer is stopped, a message sent as a branch, versions switched, all exported", async () => {
  const page = await open("scripted");
  const answer = await feed(page);
  await answer.give("Some words", "words");
  await page.waitForFunction(() => document.activeElement?.id === "message");
  await reach(page, "Stop");
  await page.keyboard.press("Enter");
  assert.equal(await answered(page), "Some words");
  assert.match(await page.innerText(".message.assistant .note"), /stopped/);
  await page.focus(".thread");
  await reach(page, "Edit");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".edit-field:focus");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("another");
  await page.evaluate(() => (window.give = undefined));
  await page.keyboard.press("Control+Enter");
  await page.waitForFunction(() => window.give);
  await answer.give("Other words", "Other words");
  await answer.end();
  assert.equal(await page.innerText(".message.user .branches"), "2/2");
  await page.focus(".thread");
  await reach(page, "Previous version");
  await page.keyboard.press("Enter");
  assert.equal(await page.innerText(".message.user .said"), "hello");
  assert.equal(await page.innerText(".message.assistant .prose"), "Some words");
  await page.focus(".thread");
  await reach(page, "Export all", true);
  const [download] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("Enter")]);
  const kept = JSON.parse(readFileSync(await download.path(), "utf8"));
  assert.equal(Object.keys(kept.conversations[0].messages).length, 4);
});

test("light or dark is as the system is, until somebody chooses", async () => {
  for (const dark of [false, true]) {
    const page = await open("scripted", { dark });
    const isDark = () => page.evaluate(() => getComputedStyle(document.documentElement).colorScheme === "dark" && getComputedStyle(document.body).backgroundColor === "rgb(20, 24, 26)");
    assert.equal(await isDark(), dark);
    await page.click("[aria-label='Switch between light and dark']");
    assert.equal(await isDark(), !dark);
    await page.reload();
    await page.waitForSelector("[aria-label='Switch between light and dark']");
    assert.equal(await isDark(), !dark);
    await page.click("[aria-label='Switch between light and dark']");
    assert.equal(await isDark(), dark);
  }
});

await main();
