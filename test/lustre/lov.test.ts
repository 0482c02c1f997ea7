// Layouts from the xattr, against what `lfs getstripe -y` printed of the same file.
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseGetstripe } from "../../src/lustre/getstripe.ts";
import { END_OF_FILE, isReleased, spreadOf } from "../../src/lustre/layout.ts";
import { decodeLov } from "../../src/lustre/lov.ts";
import { allHex, comparable, hexOf, recorded, sampled } from "./fixtures.ts";
import { hostileLov } from "./hostile.ts";

const PAIRS: readonly (readonly [name: string, xattr: string, printed: string])[] = [
  ["4 stripes", recorded("getfattr-plain4.txt"), recorded("getstripe-y-plain4.txt")],
  ["4 stripes, any user", recorded("as-nobody-getfattr-lustre.lov.txt"), recorded("as-nobody-getstripe.txt")],
  ["4 stripes, one xattr", recorded("getfattr-lustre.lov-plain4.txt"), recorded("getstripe-y-plain4.txt")],
  ["PFL, one xattr", recorded("getfattr-lustre.lov-pfl.txt"), recorded("getstripe-y-pfl.txt")],
  ["PFL, root's xattr", recorded("getfattr-trusted.lov-pfl.txt"), recorded("getstripe-y-pfl.txt")],
  ["PFL", recorded("getfattr-pfl.txt"), recorded("getstripe-y-pfl.txt")],
  ["DoM", recorded("getfattr-dom.txt"), recorded("getstripe-y-dom.txt")],
  ["overstriped", recorded("getfattr-over.txt"), recorded("getstripe-y-overstripe.txt")],
  ["a pool", recorded("getfattr-pool.txt"), recorded("getstripe-y-pool.txt")],
  ["a folder", recorded("getfattr-dir.txt"), recorded("getstripe-y-dir-c4.txt")],
  ["released", recorded("hsm-real-copytool.txt"), yamlOf(recorded("hsm-real-copytool.txt"))],
  ["before the release", recorded("hsm-released.txt"), yamlOf(recorded("hsm-released.txt"))],
  ["an empty file", recorded("getfattr-uninstantiated.txt"), yamlOf(recorded("getfattr-uninstantiated.txt"))],
  ["4 stripes, sample", sampled("xattr-lov-v1-4stripe.hex"), sampled("getstripe-y-plain.yaml")],
  ["a pool, sample", sampled("xattr-lov-v3-pool-flash.hex"), sampled("getstripe-y-plain-pool-v3.yaml")],
  ["released, sample", sampled("xattr-lov-v1-released.hex"), sampled("getstripe-y-hsm-released.yaml")],
  ["PFL, sample of 2.16", sampled("xattr-lov-comp-pfl3.hex"), sampled("getstripe-y-pfl-2.16plus.yaml")],
  ["PFL, sample of 2.15", sampled("xattr-lov-comp-pfl3.hex"), sampled("getstripe-y-pfl-2.15minus.yaml")],
  ["DoM, sample", sampled("xattr-lov-comp-dom.hex"), sampled("getstripe-y-dom-pfl.yaml")],
  ["mirrors, sample", sampled("xattr-lov-comp-flr.hex"), sampled("getstripe-y-flr-stale.yaml")],
];

/** The YAML block of a recording of several commands. */
function yamlOf(text: string): string {
  return text.split(/\n\n|^(?=# file)/m).findLast((block) => block.startsWith("lmm_stripe_count")) ?? "";
}

for (const [name, xattr, printed] of PAIRS) {
  test(`xattr and getstripe -y tell one layout: ${name}`, () => {
    const blocks = parseGetstripe(printed, "/f");
    assert.equal(blocks.length, 1, printed);
    assert.deepEqual(comparable(decodeLov(hexOf(xattr), "/f")), comparable(blocks[0]!.layout));
  });
}

test("every recorded and sampled xattr is compared, but the one whose text is of another file", () => {
  const compared = new Set(PAIRS.map(([, xattr]) => Buffer.from(hexOf(xattr)).toString("hex")));
  const left = allHex().filter(({ bytes }) => !compared.has(Buffer.from(bytes).toString("hex")));
  assert.deepEqual(
    left.map(({ name }) => name),
    ["xattr-lov-v1-overstriped.hex"],
  );
  const [part] = decodeLov(left[0]!.bytes, "/f").components;
  assert.deepEqual(
    [part?.pattern, part?.osts],
    [
      ["raid0", "overstriped"],
      [0, 1, 0, 1],
    ],
  );
});

test("a released file is known by its layout, and no OST holds a byte of it", () => {
  const layout = decodeLov(hexOf(recorded("hsm-real-copytool.txt")), "/f");
  assert.ok(isReleased(layout));
  assert.deepEqual(spreadOf(layout, 0n, 1n << 25n), { osts: new Map(), mdt: 0n, none: 1n << 25n });
});

test("counts of the default of a folder: all OSTs, two on each", () => {
  for (const [stored, count] of [
    ["ffff", -1],
    ["feff", -2],
    ["e0ff", -32],
  ] as const) {
    const hex = `d00bd10b0100000000000000000000000000000000000000000040 00${stored}ffff`.replaceAll(" ", "");
    assert.equal(decodeLov(new Uint8Array(Buffer.from(hex, "hex")), "/d").components[0]?.stripeCount, count);
  }
});

test("a self-extending layout: the step in KiB, the part in reserve", () => {
  const { bytes, view } = composite([
    { id: 1, flags: 0x10, start: 0n, end: 1n << 26n, count: 1, size: 4 << 20, osts: [3] },
    { id: 2, flags: 0x40, start: 1n << 26n, end: END_OF_FILE, count: 0, size: 65_536, osts: [] },
  ]);
  view.setUint32(0, 0x0bd80bd0, true);
  const { components } = decodeLov(bytes, "/f");
  assert.deepEqual(
    components.map(({ extensionSize, stripeSize, osts }) => [extensionSize, stripeSize, osts]),
    [
      [undefined, 4 << 20, [3]],
      [64 << 20, 0, []],
    ],
  );
});

test("a foreign layout keeps what it says of itself", () => {
  const bytes = new Uint8Array(24);
  const view = new DataView(bytes.buffer);
  for (const [at, value] of [
    [0, 0x0bd70bd0],
    [4, 8],
    [8, 2],
    [12, 0xda05],
  ] as const)
    view.setUint32(at, value, true);
  assert.deepEqual(decodeLov(bytes, "/f").foreign, { type: 2, flags: 0xda05, length: 8 });
});

test("extents beyond 2^53 are exact", () => {
  const start = 2n ** 60n + 1n;
  const { bytes } = composite([{ id: 1, flags: 0x10, start, end: start + 3n, count: 1, size: 4 << 20, osts: [1] }]);
  const [component] = decodeLov(bytes, "/f").components;
  assert.deepEqual([component?.start, component?.end], [start, start + 3n]);
});

test("a cut or damaged layout is refused with file and byte", () => {
  const whole = hexOf(recorded("getfattr-plain4.txt"));
  for (const length of [0, 3, 31, 33, 100]) {
    assert.throws(() => decodeLov(whole.slice(0, length), "/d/a"), {
      code: "ATH_LAYOUT_INVALID",
      where: { file: "/d/a", byteOffset: length },
    });
  }
  const { bytes, view } = composite([{ id: 1, flags: 0x10, start: 0n, end: 9n, count: 1, size: 1 << 20, osts: [1] }]);
  view.setUint32(32 + 24, 4000, true);
  assert.throws(() => decodeLov(bytes, "/d/a"), /component 0 lies outside of it: bytes 4000 to 4056 of 136/);
});

test("a layout that claims more than it has, or lies over itself, costs no time and no memory", () => {
  const part = { id: 1, flags: 0x10, start: 0n, end: END_OF_FILE, count: 1, size: 1 << 20, osts: [1] };
  const claims = composite([part]);
  for (const [at, bytes, value, message] of [
    [4, 4, 0xffff_ffff, /says that it is 4294967295 bytes long, found 136/],
    [14, 2, 0xffff, /65535 components needs 3145712 bytes, found 136/],
    [32 + 28, 4, 0xffff_ffff, /component 0 lies outside of it/],
    [32 + 24, 4, 32, /component 0 lies over another one: bytes 32 to 88/],
    [80 + 28, 2, 0xffdf, /65503 stripes needs 1572104 bytes, found 56/],
  ] as const) {
    const view = new DataView(claims.bytes.slice().buffer);
    if (bytes === 4) view.setUint32(at, value, true);
    else view.setUint16(at, value, true);
    assert.throws(() => decodeLov(new Uint8Array(view.buffer), "/d/a"), { code: "ATH_LAYOUT_INVALID", message });
  }
  // The longest xattr, 64 KiB: 682 components that all name the same 1364 stripes.
  const many = Array.from({ length: 682 }, () => ({ ...part, count: 0, osts: [] as number[] }));
  const { bytes, view } = composite([
    ...many,
    { ...part, count: 1364, osts: Array.from({ length: 1364 }, (_, i) => i) },
  ]);
  for (let i = 0; i < 682; i++) {
    view.setUint32(32 + 48 * i + 24, bytes.length - 32 - 24 * 1364, true);
    view.setUint32(32 + 48 * i + 28, 32 + 24 * 1364, true);
  }
  assert.throws(() => decodeLov(bytes, "/d/a"), { message: /component 1 lies over another one/ });
});

test("2 000 stripes, the most that Lustre has, and extents beyond 2^63", () => {
  const osts = Array.from({ length: 2000 }, (_, i) => i);
  const start = 2n ** 63n + 4096n;
  const part = { id: 1, flags: 0x10, start, end: END_OF_FILE, count: 2000, size: 4 << 20, osts };
  const layout = decodeLov(composite([part]).bytes, "/f");
  assert.deepEqual(layout.components[0]?.osts, osts);
  assert.equal(layout.components[0]?.start, start);
  assert.deepEqual(spreadOf(layout, start, 1n << 23n).none, 0n);
  assert.equal(spreadOf(layout, 0n, 1n << 23n).none, 1n << 23n);
});

test("random bytes and mutated layouts: a layout or a coded error, and sums that hold", () => {
  const { told, refused } = hostileLov(3000, 1);
  assert.ok(told > 200 && refused > 1000, `${told} were layouts, ${refused} were refused`);
});

interface Part {
  id: number;
  flags: number;
  start: bigint;
  end: bigint;
  count: number;
  size: number;
  osts: number[];
}

/** A composite layout as a server writes it. */
function composite(parts: readonly Part[]): { bytes: Uint8Array; view: DataView } {
  const sizes = parts.map(({ osts }) => 32 + 24 * osts.length);
  const bytes = new Uint8Array(32 + 48 * parts.length + sizes.reduce((sum, size) => sum + size, 0));
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 0x0bd60bd0, true);
  view.setUint32(4, bytes.length, true);
  view.setUint16(14, parts.length, true);
  let at = 32 + 48 * parts.length;
  for (const [i, { id, flags, start, end, count, size, osts }] of parts.entries()) {
    const entry = 32 + 48 * i;
    view.setUint32(entry, id, true);
    view.setUint32(entry + 4, flags, true);
    view.setBigUint64(entry + 8, start, true);
    view.setBigUint64(entry + 16, end, true);
    view.setUint32(entry + 24, at, true);
    view.setUint32(entry + 28, sizes[i]!, true);
    view.setUint32(at, 0x0bd10bd0, true);
    view.setUint32(at + 4, 1, true);
    view.setUint32(at + 24, size, true);
    view.setUint16(at + 28, count, true);
    for (const [k, ost] of osts.entries()) view.setUint32(at + 32 + 24 * k + 20, ost, true);
    at += sizes[i]!;
  }
  return { bytes, view };
}
