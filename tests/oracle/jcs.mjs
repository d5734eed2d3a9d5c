// An independent reader and writer for the order and string rules of RFC 8785.
//
// Reads one JSON text a line on standard input and prints for each its canonical form. Numbers
// must be integers that a double holds exactly: number rules are not this program's business.
import { readFileSync } from "node:fs";

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") {
    if (typeof value === "number" && !Number.isSafeInteger(value)) throw new Error("only small integers");
    return JSON.stringify(value);
  }
  // Array.prototype.sort compares strings by UTF-16 code units, as the RFC asks.
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

const lines = readFileSync(0, "utf8").split("\n").filter((line) => line !== "");
process.stdout.write(lines.map((line) => `${canonical(JSON.parse(line))}\n`).join(""));
