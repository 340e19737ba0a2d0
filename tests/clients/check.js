// check.js: what the tests of the three clients share. Speaks TAP, as the other test programs do.
import assert from "node:assert/strict";

export { assert };
export const base = process.env.MO_SERVER;
export const hello = "Tell me a story about a fox.";
export const weather = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};

const tests = [];
export function test(name, run) {
  tests.push({ name, run });
}

// Runs them one after the other; a name in the arguments chooses.
export async function main() {
  const chosen = tests.filter((t) => process.argv.length < 3 || process.argv.includes(t.name));
  let failures = 0;
  console.log(`1..${chosen.length}`);
  for (const [i, t] of chosen.entries()) {
    try {
      await t.run();
      console.log(`ok ${i + 1} - ${t.name}`);
    } catch (problem) {
      failures++;
      console.log(`not ok ${i + 1} - ${t.name}`);
      console.log(`# ${String(problem?.stack ?? problem).slice(0, 2000).replaceAll("\n", "\n# ")}`);
    }
  }
  process.exitCode = failures ? 1 : 0;
}

// The call must be refused with this status; gives the error.
export async function refused(promise, status) {
  try {
    await promise;
  } catch (problem) {
    assert.equal(problem.status ?? problem.status_code, status, String(problem));
    return problem;
  }
  assert.fail(`was not refused with ${status}`);
}
