// What MooseFS's tools print, recorded from 3.0.117 where nothing else is said.
import assert from "node:assert/strict";
import { test } from "node:test";
import { askChunks, parseChunks } from "../../src/placement/chunks.ts";

const RECORDED = `hole:
	chunk 0: empty
	chunk 1: empty
	chunk 2: 0000000000000006_00000001 / (id:6 ver:1)
		copy 1: 10.77.0.12:9422 (status:VALID)
two/x:
	chunk 0: 0000000000000005_00000001 / (id:5 ver:1)
		copy 1: 10.77.0.11:9422 (status:VALID)
		copy 2: 10.77.0.14:9422 (status:VALID)
nope: realpath error on (/mnt/mfs/nope): ENOENT (No such file or directory)
d: Operation not permitted
lost:
	chunk 0: 0000000000000001_00000001 / (id:1 ver:1)
		no valid copies !!!
empty:
	no chunks - empty file
f1:
	chunk 0: 0000000000000002_00000001 / (id:2 ver:1)
		copy 1: 10.77.0.14:9422 (status:VALID)
`;

test("servers of the chunks of several files, holes, a lost chunk; what is told of none is none", () => {
  const asked = ["hole", "two/x", "nope", "d", "lost", "empty", "f1", "not printed"];
  assert.deepEqual(
    [...parseChunks(RECORDED, asked)],
    [
      ["hole", [[], [], ["10.77.0.12:9422"]]],
      ["two/x", [["10.77.0.11:9422", "10.77.0.14:9422"]]],
      ["lost", [[]]],
      ["empty", []],
      ["f1", [["10.77.0.14:9422"]]],
    ],
  );
});

test("other versions: no status, a label, parts of an erasure code; a copy that is no good", () => {
  const text = `a:
	chunk 0: 0000000000000681_00000001 / (id:1665 ver:1)
		copy 1: 192.168.200.166:9422
	chunk 1: 0000000000000682_00000001 / (id:1666 ver:1)
		copy 1: 192.168.200.166:9422:wn
		copy 2: 192.168.200.167:9422:wn part 1/2 of xor2
	chunk 2: 0000000000000683_00000001 / (id:1667 ver:1)
		copy 1: 192.168.200.166:9422 (status:INVALID)
		copy 2: 192.168.200.168:9422 (status:VALID)
`;
  assert.deepEqual(parseChunks(text, ["a"]).get("a"), [
    ["192.168.200.166:9422"],
    ["192.168.200.166:9422", "192.168.200.167:9422"],
    ["192.168.200.168:9422"],
  ]);
});

test("text that is none of a tool's: nothing is made of it, and nothing is made room for", () => {
  for (const text of [
    "",
    "a:",
    "a:\n\tchunk 4294967295: x\n\t\tcopy 1: 1.2.3.4:5\n",
    "\t\tcopy 1: 1.2.3.4:5\n",
    "b:\n\tchunk 0: x\n",
  ])
    assert.deepEqual(parseChunks(text, ["a"]).get("a") ?? [], []);
});

test("no such tool; files of another file system", async () => {
  const path = process.env["PATH"];
  try {
    process.env["PATH"] = "/no-such-folder";
    assert.equal(await askChunks(["/etc/passwd"]), undefined);
  } finally {
    process.env["PATH"] = path;
  }
  const asked = await askChunks(["/etc/passwd"]);
  // Installed or not.
  if (asked !== undefined) assert.deepEqual([asked.files.size, asked.silent], [0, true]);
});
