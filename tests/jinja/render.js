// render.js: as `moraine template`, by another interpreter: lines of JSON {"template", "context"} in, {"text"} or {"error"} out.
import { createInterface } from "node:readline";
import { Template } from "@huggingface/jinja";

for await (const line of createInterface({ input: process.stdin })) {
  const { template, context } = JSON.parse(line);
  let out;
  try {
    out = { text: new Template(template).render(context) };
  } catch (problem) {
    out = { error: String(problem.message ?? problem) };
  }
  console.log(JSON.stringify(out));
}
