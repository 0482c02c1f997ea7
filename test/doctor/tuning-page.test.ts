// docs/reference/lustre-tuning.md says what doctor says: every tunable, when it is told, the line, why, risk and source.
import assert from "node:assert/strict";
import { test } from "node:test";
import { diagnose } from "../../src/doctor/diagnose.ts";
import { FINDINGS } from "../../src/doctor/findings.ts";
import type { FindingId } from "../../src/doctor/findings.ts";
import { TUNABLES } from "../../src/doctor/tunable-list.ts";
import { read } from "../house/tree.ts";
import { NODE, factsOf, port, recorded } from "./scene.ts";

const PAGE = "docs/reference/lustre-tuning.md";

interface Section {
  name: string;
  /** By its first word: `what`, `line`, … */
  points: Map<string, string>;
}

const sections = new Map<string, Section>(
  [...read(PAGE).matchAll(/^### (.+) \[([a-z-]+)\]\n((?:\* .+\n)+)/gm)].map(([, name, id, list]) => [
    id as string,
    {
      name: name as string,
      points: new Map(
        [...list!.matchAll(/^\* (\w+): (.+)$/gm)].map(([, key, text]) => [key as string, text as string]),
      ),
    },
  ]),
);

/** Findings on a node on which all of them are told, and what is to be set. */
const { findings, settings } = diagnose({
  ...factsOf({
    ...NODE,
    ...port("mlx5_0", { net: "ib0" }),
    ...port("mlx5_1", { net: "ib1" }),
    "sys/class/dmi/id/sys_vendor": "Amazon EC2",
    "sys/devices/system/cpu/online": "0-95",
    "sys/class/bdi/lustre-ff00/read_ahead_kb": "4096",
    "sys/fs/lustre/version": "2.17.1",
    "sys/fs/lustre/llite/fs-ff00/lazystatfs": "0",
    "sys/kernel/debug/lustre/llite/fs-ff00/max_cached_mb": "max_cached_mb: 32",
    "sys/module/ko2iblnd/parameters/peer_credits": "8",
    "sys/module/ptlrpc/parameters/ptlrpcd_per_cpt_max": "2",
    "sys/module/lnet/parameters/lnet_peer_discovery_disabled": "1",
    "sys/module/lnet/parameters/lnet_health_sensitivity": "0",
  }),
  tools: new Map([
    [
      "lnetctl net show -v",
      {
        status: 0,
        stdout: recorded("lnetctl-net-show-v.txt") + recorded("lnetctl-net-show-v.txt").replaceAll("@tcp", "@o2ib"),
        stderr: "",
        missing: false,
        timedOut: false,
      },
    ],
  ]),
  watched: [
    {
      point: "/mnt/fs",
      type: "lustre",
      source: "172.31.14.250@tcp,10.0.8.11@o2ib:/fs",
      kind: "lustre",
      options: ["flock"],
    },
  ],
  targets: new Map([["/mnt/fs", { targets: [], notes: [] }]]),
});

test("every tunable has its section, with the words and the bar of the code", () => {
  for (const { id, name, wrong, value, what, why, risk } of TUNABLES) {
    const section = sections.get(id);
    assert.ok(section !== undefined, `${PAGE} has no section [${id}]`);
    assert.equal(section.name, `\`${name}\``);
    const { points } = section;
    assert.deepEqual([points.get("what"), points.get("why"), points.get("risk")], [what, why, risk], id);
    assert.equal(points.get("after"), FINDINGS[id][1], id);
    const line = value === undefined ? "none: the site has to think" : `\`lctl set_param ${name}=${value}\``;
    assert.equal(points.get("line"), line, id);
    const [, side, bar] = /^(?:(below|above) )?(\d+)/.exec(points.get("told") ?? "") ?? [];
    const at = Number(bar);
    const [fine, told] = side === "below" ? [at, at - 1] : side === "above" ? [at, at + 1] : [at + 1, at];
    assert.deepEqual([wrong(fine, ["tcp"]), wrong(told, ["tcp"])], [false, true], `${id}: told ${bar}`);
    assert.match(points.get("default") ?? "", /\d/, id);
  }
});

test("so have module options, LNet and the mount; nothing else has one", () => {
  const others = [...sections.keys()].filter((id) => !TUNABLES.some((tunable) => tunable.id === id)) as FindingId[];
  const all = (Object.keys(FINDINGS) as FindingId[]).filter((id) => id.startsWith("tunable-"));
  assert.deepEqual(
    [...all].filter((id) => !sections.has(id)),
    [],
  );
  for (const id of others) {
    const { points } = sections.get(id)!;
    assert.equal(points.get("after"), FINDINGS[id][1], id);
    const found = findings.find((one) => one.id === id);
    assert.ok(found !== undefined, `nothing tells ${id} on this node`);
    // A line in the findings' words, or one that stands in the site's configuration with why and risk.
    const line = /`([^`]+)`/.exec(points.get("line") ?? "")?.[1];
    const setting = settings.find((one) => one.line === line);
    if (setting !== undefined) {
      assert.equal(points.get("risk"), setting.risk, id);
      const why = points.get("why")!;
      assert.ok(setting.why.endsWith(why), `${id}: ${setting.why}`);
    } else {
      const said = found.fix.replace(/bdi\/[^/]+\//, "bdi/NAME/");
      assert.ok(said.includes(line ?? points.get("line")!.replace(/^none: /, "")), `${id}: ${said}`);
    }
  }
  const named = new Set(settings.map(({ line }) => line));
  for (const line of ["lnetctl set discovery 1", "lnetctl set health_sensitivity 100"])
    assert.ok(named.has(line), line);
});
