// pictures.js: the pictures of the page in the documentation (tools/pictures.py).
import { writeFileSync } from "node:fs";
import { assert, main, open, picture, pictures, say, servers, test } from "./check.js";
import { recording } from "./recording.js";

const size = { width: 1120, height: 640 };

// An answer that goes on while the picture is taken.
function ask(tokens) {
  return fetch(`${servers.sim}v1/completions`, { method: "POST", body: JSON.stringify({ prompt: "The fox", max_tokens: tokens, ignore_eos: true, seed: 1 }) }).then((r) => r.text());
}

test("pictures", async () => {
  const chat = await open("sim", size);
  await say(chat, "Tell me a short story about a fox.");
  await say(chat, "Tell me another story, about a hare.");
  await chat.waitForTimeout(1500);
  await picture(chat, "page-chat");

  const machine = await open("sim", { ...size, height: 860, hash: "#machine" });
  await machine.waitForSelector(".what-if .bar");
  const again = ask(1900);
  await machine.waitForTimeout(2500);
  await picture(machine, "page-machine");
  await again;
});

// An answer at the pace of a large model, three tokens at a time, and the map's pixels as it is written.
test("recording of the map", async () => {
  const page = await open("small", { ...size, height: 420, hash: "#experts", dark: true });
  await page.waitForSelector(".legend .by-cpu");
  const post = async (path, body) => (await fetch(servers.small + path, { method: "POST", body: JSON.stringify(body) })).json();
  const { prompt } = await post("apply-template", { messages: [{ role: "user", content: "Tell me a short story about a fox." }] });
  await post("completion", { prompt, n_predict: 1 });
  await page.waitForTimeout(3000);
  const frames = [];
  let text = "", ended = false;
  const write = async () => {
    for (let i = 0; i < 32 && !ended; i++) {
      if (i === 12) {
        await picture(page, "page-experts");
      }
      const next = new Promise((resolve) => setTimeout(resolve, 250));
      const answer = await post("completion", { prompt: prompt + text, n_predict: 3, temperature: 0, cache_prompt: true });
      text += answer.content;
      ended = answer.stop_type === "eos";
      await next;
    }
    await page.waitForTimeout(1600); // it fades
    ended = true;
  };
  const writing = write();
  while (!ended || frames.length < 10) {
    const next = new Promise((resolve) => setTimeout(resolve, 200));
    frames.push({ text, pixels: await page.evaluate(() => {
      const c = document.querySelector(".grid-canvas");
      return [...new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer)];
    }) });
    await next;
  }
  await writing;
  const legend = await page.evaluate(() => [...document.querySelectorAll(".legend li")].filter((li) => li.querySelector(".swatch")).map((li) => {
    const c = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
    c.fillStyle = getComputedStyle(li.querySelector(".swatch")).backgroundColor;
    c.fillRect(0, 0, 1, 1);
    const [r, g, b] = c.getImageData(0, 0, 1, 1).data;
    return { name: li.textContent.replace(/ [\d,]+$/, ""), colour: `rgb(${r},${g},${b})` };
  }));
  const columns = await page.evaluate(() => document.querySelector(".grid-canvas").width);
  const svg = recording(frames, columns, legend, `${frames[0].pixels.length} experts in ${frames[0].pixels.length / columns} layers while the model writes`);
  assert.ok(svg.length < 400_000, `${svg.length} bytes`);
  writeFileSync(`${pictures}/experts.svg`, svg);
});

await main();
