/** Damaged outputs of the tools that doctor asks, as `test/lustre/hostile.ts` has them: a report, never an error, and no number that is none. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { diagnose } from "../../src/doctor/diagnose.ts";
import { diagnosisJson, diagnosisText, siteConfig } from "../../src/doctor/text.ts";
import { mutatedText, told } from "../lustre/hostile.ts";
import type { Hostile } from "../lustre/hostile.ts";
import { NODE, TREE, factsOf, port, recorded, sampled } from "./scene.ts";

/** What each command printed, on one Lustre or another. */
const PRINTED: Readonly<Record<string, readonly string[]>> = {
  "lnetctl net show -v": [
    recorded("lnetctl-net-show-v.txt"),
    sampled("lnetctl-net-show-v.yaml"),
    sampled("lnetctl-net-show-down.yaml"),
  ],
  "lctl list_nids": [recorded("lctl-list_nids.txt")],
  "lctl get_param osc.*.stats": [recorded("get_param-osc.stats.txt")],
  "lctl get_param osc.*.import": [
    recorded("get_param-osc.import.txt"),
    recorded("failout-osc-import.txt"),
    sampled("lctl-get_param-osc-import.txt").replaceAll("trainfs", "lustre"),
  ],
  dmesg: [sampled("dmesg-lustre.txt")],
  "lfs quota -u 0 /mnt/lustre": [sampled("lfs-quota-p.txt")],
  "lfs df -i /mnt/lustre": [recorded("lfs-df-i.txt"), sampled("lfs-df-i.txt")],
};
/** Values of `lctl get_param`, as `/sys` holds them. */
const PARAMETERS = Object.entries(TREE).map(([path, text]) => [`sys/fs/lustre/${path}`, text] as const);

export const hostileTools: Hostile = (runs, seed) => {
  const commands = Object.entries(PRINTED).map(([line, texts]) =>
    fc.option(mutatedText(texts), { nil: undefined }).map((text) => [line, text] as const),
  );
  const parameters = fc.array(
    fc.tuple(fc.constantFrom(...PARAMETERS), mutatedText(PARAMETERS.map(([, text]) => text))),
    { maxLength: 3 },
  );
  const point = "/mnt/lustre";
  const mount = { point, type: "lustre", source: "10.0.2.15@tcp:/lustre", kind: "lustre" as const, options: ["rw"] };
  const base = {
    ...factsOf({ ...NODE, ...Object.fromEntries(PARAMETERS), ...port("mlx5_0", { net: "ib0" }) }),
    watched: [mount],
    targets: new Map([[point, { targets: [], notes: [] }]]),
  };
  const always = diagnose(base).findings.length;
  return told(fc.tuple(fc.tuple(...commands), parameters), runs, seed, ([printed, changed]) => {
    const tools = new Map(
      printed.flatMap(([line, stdout]) =>
        stdout === undefined
          ? []
          : [[line, { status: 0, stdout, stderr: "", missing: false, timedOut: false }] as const],
      ),
    );
    const files = new Map([...base.files, ...changed.map(([[path], text]) => [path, text] as const)]);
    const found = diagnose({ ...base, files, tools });
    for (const text of [diagnosisText(found), siteConfig(found)])
      assert.doesNotMatch(text, /\bundefined\b|\bNaN\b|\bInfinity\b/);
    JSON.stringify(diagnosisJson(found));
    return found.findings.length > always;
  });
};
