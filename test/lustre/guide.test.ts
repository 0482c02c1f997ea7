// What docs/guides/lustre.md and rdma.md show of reports is what the golden reports say.
import assert from "node:assert/strict";
import { test } from "node:test";
import { read } from "../house/tree.ts";

const SHOWN: readonly (readonly [page: string, command: string, golden: string])[] = [
  ["docs/guides/lustre.md", "srun -N1 -n1 athanor doctor /mnt/lustre/web", "doctor/golden/full-ost.txt"],
  ["docs/guides/lustre.md", "athanor layout advise /mnt/lustre/web", "lustre/golden/one-ost-advise.txt"],
  ["docs/guides/rdma.md", "athanor doctor /mnt/lustre/web", "doctor/golden/idle-infiniband.txt"],
];

for (const [page, command, golden] of SHOWN) {
  test(`${page}: what \`${command}\` prints is in ${golden}, in this order`, () => {
    const block = read(page)
      .split(`$ ${command}\n`)[1]
      ?.split("\n```")[0]
      ?.replaceAll("/mnt/lustre/web", "/mnt/lustre/d");
    const lines = block?.split("\n") ?? [];
    assert.ok(lines.length > 3);
    const printed = read(`test/fixtures/${golden}`).split("\n");
    const places = lines.map((line) => printed.indexOf(line));
    assert.deepEqual(
      lines.filter((_, i) => places[i]! < 0),
      [],
    );
    assert.deepEqual(
      places,
      [...places].sort((a, b) => a - b),
    );
  });
}
