// The layout of CephFS files: what it says of requests.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { cephRequestBytes, parseCephLayout } from "../../src/placement/ceph.ts";
import { Placement } from "../../src/placement/placement.ts";
import { replay } from "../lustre/replay.ts";

const MIB = 1 << 20;
const layout = (unit: number, count: number, object: number, more = "pool=cephfs_data"): string =>
  `stripe_unit=${unit * MIB} stripe_count=${count} object_size=${object * MIB} ${more}`;

test("a layout as Ceph prints it; what is none", () => {
  assert.deepEqual(parseCephLayout(layout(1, 8, 4, "pool=data pool_namespace=team-a")), {
    stripeUnit: MIB,
    stripeCount: 8,
    objectSize: 4 * MIB,
    pool: "data",
    namespace: "team-a",
  });
  for (const text of ["", "0x0005", "stripe_unit=4194304", "stripe_unit=0 stripe_count=1 object_size=1 pool=x"])
    assert.equal(parseCephLayout(text), undefined, text);
});

test("requests are whole objects or rounds of them, from 8 to 16 MiB", () => {
  for (const [unit, count, object, expected] of [
    [4, 1, 4, 8],
    [16, 1, 16, 16],
    [64, 1, 64, 16],
    [1, 10, 4, 10],
    [3, 1, 3, 9],
  ] as const)
    assert.equal(cephRequestBytes(parseCephLayout(layout(unit, count, object))!), expected * MIB);
});

test("one file of a data set is asked; no OSD is named", async (t) => {
  const files = { "d/a": { size: 1, xattrs: { "ceph.file.layout": layout(16, 1, 16) } }, "d/b": { size: 1 } };
  const node = replay(t, { files, system: "ceph 10.0.9.1:6789:/ rw" });
  await node.inside(async () => {
    const placement = new Placement();
    const home = placement.home(node.folder)!;
    const paths = ["a", "b"].map((name) => join(node.folder, "d", name));
    home.expect(paths);
    for (let k = 0; home.requestBytes === undefined; k++) {
      assert.ok(k < 1000, "nothing was learned");
      // oxlint-disable-next-line no-await-in-loop -- waits
      await sleep(10);
    }
    home.expect(paths);
    await sleep(50);
    assert.equal(home.requestBytes, 16 * MIB);
    assert.equal(home.targetsOf(paths[0]!, 0, 1), undefined);
    assert.deepEqual(new Set(node.askedFor()), new Set(["/mnt/lustre/d/a"]));
    placement.close();
  });
});
