// pictures.js: the pictures of the page in the documentation (tools/pictures.py).
import { main, open, picture, say, servers, test } from "./check.js";

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

  const experts = await open("sim", { ...size, height: 420, hash: "#experts", dark: true });
  await experts.waitForSelector(".legend .ram");
  const running = ask(1500);
  await experts.waitForTimeout(1800);
  await picture(experts, "page-experts");
  await running;

  const machine = await open("sim", { ...size, height: 860, hash: "#machine" });
  await machine.waitForSelector(".what-if .bar");
  const again = ask(1900);
  await machine.waitForTimeout(2500);
  await picture(machine, "page-machine");
  await again;
});

await main();
