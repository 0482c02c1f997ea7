// `lfs getstripe` of all shapes: case 60, the recordings, and text that is none of it.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import type { AthanorError } from "../../src/base/errors.ts";
import { parseGetstripe } from "../../src/lustre/getstripe.ts";
import type { PrintedLayout } from "../../src/lustre/getstripe.ts";
import { END_OF_FILE, isReleased } from "../../src/lustre/layout.ts";
import { CASE_60, FIXTURES, comparable, recorded, sampled } from "./fixtures.ts";
import { hostileGetstripe } from "./hostile.ts";

interface Expected {
  records: Record<
    string,
    { path: string | null; directory?: true; mirrors?: number; components: ExpectedComponent[] }[]
  >;
}
interface ExpectedComponent {
  start: number;
  end: number | null;
  stripe_count: number;
  stripe_size: number;
  pattern: string | null;
  stripe_offset: number | null;
  osts: number[];
  init: boolean;
  stale: boolean;
  pool: string | null;
}

/** In the words of the case, which keeps what old versions printed as pattern. */
function asInCase({ path, folder, layout }: PrintedLayout): unknown {
  const components = layout.components.map((component) => ({
    start: Number(component.start),
    end: component.end === END_OF_FILE ? null : Number(component.end),
    stripe_count: component.stripeCount,
    stripe_size: component.stripeSize,
    pattern: component.pattern.join(","),
    stripe_offset: component.stripeOffset ?? null,
    osts: component.osts,
    // The case calls what has no components written.
    init: !layout.composite || component.flags.includes("init"),
    stale: component.flags.includes("stale"),
    pool: component.pool ?? null,
  }));
  const more = {
    ...(folder ? { directory: true } : {}),
    ...(layout.mirrors > 1 ? { mirrors: layout.mirrors } : {}),
    ...(isReleased(layout) ? { hsm_released: true } : {}),
  };
  return { path: path ?? null, ...more, components };
}

const PATTERN: Record<string, string> = { "raid0 (1)": "raid0", "0": "" };
const expected = JSON.parse(readFileSync(`${CASE_60}expected.json`, "utf8")) as Expected;

for (const [name, records] of Object.entries(expected.records)) {
  test(`case 60: ${name}`, () => {
    const wanted = records.map(({ components, ...record }) => ({
      ...record,
      components: components.map((component) => ({
        ...component,
        pattern: component.pattern === null ? "" : (PATTERN[component.pattern] ?? component.pattern),
      })),
    }));
    assert.deepEqual(parseGetstripe(readFileSync(CASE_60 + name, "utf8"), "/f").map(asInCase), wanted);
  });
}

const BOTH: readonly (readonly [string, string, string])[] = [
  ["4 stripes", recorded("getstripe-plain4.txt"), recorded("getstripe-y-plain4.txt")],
  ["PFL", recorded("getstripe-pfl.txt"), recorded("getstripe-y-pfl.txt")],
  ["PFL, more words", recorded("getstripe-v-pfl.txt"), recorded("getstripe-y-pfl.txt")],
  ["DoM", recorded("getstripe-dom.txt"), recorded("getstripe-y-dom.txt")],
  ["overstriped", recorded("getstripe-overstripe.txt"), recorded("getstripe-y-overstripe.txt")],
  ["mirrors", recorded("getstripe-mirror.txt"), recorded("getstripe-y-mirror.txt")],
  ["self-extending", recorded("getstripe-sel.txt"), recorded("getstripe-y-sel.txt")],
  ["a pool", recorded("getstripe-pool.txt"), recorded("getstripe-y-pool.txt")],
  ["a folder", recorded("getstripe-d-dir-c4.txt"), recorded("getstripe-y-dir-c4.txt")],
  ["a folder with PFL", recorded("getstripe-pfl-dir.txt"), recorded("getstripe-y-pfl-dir.txt")],
  ["PFL of 2.15 and 2.16", sampled("getstripe-y-pfl-2.15minus.yaml"), sampled("getstripe-y-pfl-2.16plus.yaml")],
];

for (const [name, first, second] of BOTH) {
  test(`one layout in two shapes: ${name}`, () => {
    const one = (text: string): PrintedLayout => {
      const blocks = parseGetstripe(text, "/f");
      assert.equal(blocks.length, 1);
      return blocks[0]!;
    };
    assert.deepEqual(comparable(one(first).layout), comparable(one(second).layout));
    assert.equal(one(first).folder, one(second).folder);
  });
}

test("several files of -y follow each other without name or separator", () => {
  assert.equal(parseGetstripe(recorded("getstripe-multi-y.txt"), "/f").length, 2);
  assert.deepEqual(
    parseGetstripe(recorded("getstripe-recursive-y.txt"), "/f").map(({ folder, layout }) => [
      folder,
      layout.components[0]?.osts.length,
    ]),
    [
      [true, 0],
      [false, 4],
      [false, 4],
    ],
  );
  assert.deepEqual(
    parseGetstripe(recorded("getstripe-recursive.txt"), "/f").map(({ path }) => path),
    ["/mnt/lustre/d", "/mnt/lustre/d/b", "/mnt/lustre/d/a"],
  );
});

test("all recorded and sampled blocks are understood", () => {
  let blocks = 0;
  for (const part of ["recorded", "samples"]) {
    for (const name of readdirSync(FIXTURES + part)) {
      // One value only, and what -R and -h print.
      if (!/^(getstripe|fail-inactive-getstripe)/.test(name) || /getstripe-(c|hex-idx)-/.test(name)) continue;
      const found = parseGetstripe(readFileSync(`${FIXTURES}${part}/${name}`, "utf8"), name);
      assert.ok(found.length > 0, name);
      blocks += found.length;
    }
  }
  assert.ok(blocks > 40);
});

test("text that is no layout is refused with its line", () => {
  for (const [text, message] of [
    ["lmm_stripe_count: 4\nlmm_stripe_size: x\n", /line 2 .*"x" where a number belongs/],
    ["lmm_stripe_count: 4\n???\n", /line 2 .*not understood: "\?\?\?"/],
    ["      - l_ost_idx: 2\n", /line 1 .*object before any layout/],
    ["lmm_stripe_count: 1\nlmm_stripe_size: -4\n  - l_ost_idx: 1\n", /with stripes of -4 bytes/],
    ["lmm_stripe_count: 1\n  - l_ost_idx: -1\n", /line 2 .*object on OST -1/],
    ["  lcme_id: 1\n  lcme_extent.e_end: 18446744073709551616\n", /line 2 .*where a number belongs/],
    ["lcm_layout_gen: 4\nlcm_entry_count: 1\n", /without components/],
    ["lcm_layout_gen: 4\n  lcme_id: 1\n  lcme_flags: init\n", /without a stripe_count/],
  ] as const) {
    assert.throws(
      () => parseGetstripe(text, "/d/a"),
      (error: AthanorError) => {
        assert.equal(error.code, "ATH_LAYOUT_INVALID");
        assert.equal(error.where.file, "/d/a");
        assert.match(error.message, message);
        return true;
      },
    );
  }
});

test("mutated text: layouts or a coded error, and sums that hold", () => {
  const { told, refused } = hostileGetstripe(2000, 1);
  assert.ok(told > 200 && refused > 200, `${told} were layouts, ${refused} were refused`);
});
