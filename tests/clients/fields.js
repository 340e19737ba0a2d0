// fields.js: every field of the clients' request types has a row in the table of fields (MO_FIELDS), which test_server_fields.py checks.
import fs from "node:fs";
import { assert, main, test } from "./check.js";

// The names of an interface's members, without those of objects in it.
function members(text, name) {
  const begin = text.search(new RegExp(`\\binterface ${name}\\b`));
  assert.ok(begin >= 0, `${name} is not there`);
  const found = [];
  let depth = 0;
  const plain = text.slice(begin).replace(/\/\*[^]*?\*\//g, "");
  for (const line of plain.slice(plain.indexOf("{")).split("\n")) {
    const member = depth === 1 && line.match(/^\s*(?:readonly )?['"]?(\w+)['"]?\??:/);
    if (member) found.push(member[1]);
    depth += line.split("{").length - line.split("}").length;
    if (depth <= 0) break;
  }
  assert.ok(found.length > 0, `${name} has no members`);
  return found;
}

for (const { path, sdk, fields } of JSON.parse(fs.readFileSync(process.env.MO_FIELDS, "utf8"))) {
  if (sdk.length === 0) continue;
  test(`fields of ${path}`, () => {
    const missing = sdk.flatMap(([file, name, prefix = ""]) => members(fs.readFileSync(`node_modules/${file}`, "utf8"), name).map((field) => prefix + field))
      .filter((field) => !(field in fields));
    assert.deepEqual(missing, []);
  });
}

await main();
