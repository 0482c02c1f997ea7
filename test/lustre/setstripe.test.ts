// Lines of `lfs setstripe` for a layout.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { parseGetstripe } from "../../src/lustre/getstripe.ts";
import { optionsOf, quoted, setstripeOptions, sizeOption } from "../../src/lustre/setstripe.ts";
import { recorded } from "./fixtures.ts";

const options = (name: string, ost?: number): string | undefined =>
  optionsOf(parseGetstripe(recorded(name), "/f")[0]!.layout, ost)?.join(" ");

test("the options that make a recorded layout again are those it was made with", () => {
  assert.equal(options("getstripe-y-dir-c4.txt"), "-c 4 -S 4M");
  assert.equal(options("getstripe-y-pfl-dir.txt"), "-E 64M -c 1 -S 4M -E 1G -c 4 -S 4M -E -1 -c -1 -S 4M");
  assert.equal(options("getstripe-y-dom.txt"), "-E 1M -L mdt -E -1 -c 2 -S 1M");
  assert.equal(options("getstripe-y-overstripe.txt"), "-C 8 -S 1M");
  assert.equal(options("getstripe-y-mirror.txt"), "-N -E -1 -c 2 -S 4M -N -E -1 -c 2 -S 4M");
  assert.equal(options("getstripe-y-sel.txt"), "-E 256M -z 64M -c 1 -S 4M -E -1 -z 256M -c 2 -S 4M");
  assert.equal(options("getstripe-y-pool.txt"), "-c 2 -S 4M -p flash");
});

test("a file that is moved keeps its layout, and the part that lies on one OST goes to another", () => {
  assert.equal(options("getstripe-y-default-file.txt", 7), "-c 1 -S 4M -o 7");
  assert.equal(options("getstripe-y-pfl.txt", 7), "-E 64M -c 1 -S 4M -o 7 -E 1G -c 4 -S 4M -E -1 -c -1 -S 4M");
});

test("wishes, sizes, and paths as a shell takes them", () => {
  assert.equal(setstripeOptions([{ count: 1, size: 4 << 20 }], "flash").join(" "), "-c 1 -S 4M -p flash");
  assert.deepEqual([sizeOption(1n << 40n), sizeOption(65_536n), sizeOption(100n)], ["1T", "64K", "100"]);
  assert.equal(quoted("/mnt/my data/it's"), "'/mnt/my data/it'\\''s'");
  assert.equal(quoted("/mnt/a-b_c.1"), "/mnt/a-b_c.1");
  const odd = "/mnt/\u001b[31mit's\n\\n\u0085";
  assert.equal(quoted(odd), String.raw`$'/mnt/\u001b[31mit\'s\u000a\\n\u0085'`);
  const env = { ...process.env, LC_ALL: "C.UTF-8" };
  assert.equal(spawnSync("bash", ["-c", `printf %s ${quoted(odd)}`], { encoding: "utf8", env }).stdout, odd);
});
