// `npm run test:hostile [-- --format jsonl --mutations 20000 --seed 1]`: damaged shards, as `npm test` does with 300 of them. A format
// takes part whose test folder has a `samples.ts` with `hostileShards`; `lov` (layouts), `getstripe`, `targets`, `counters` and `doctor` (what tools print)
// beside them. Builds nothing: run the build first.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";

const root = join(import.meta.dirname, "..");
const { values } = parseArgs({
  options: {
    format: { type: "string" },
    mutations: { type: "string", default: "20000" },
    seed: { type: "string", default: "1" },
  },
});
const { hostile } = await import(join(root, "dist/test/formats/hostile.js"));
const { formatOf } = await import(join(root, "dist/src/formats/registry.js"));

const lustre = await import(join(root, "dist/test/lustre/hostile.js"));
const doctor = await import(join(root, "dist/test/doctor/hostile.js"));
const outputs = {
  lov: lustre.hostileLov,
  getstripe: lustre.hostileGetstripe,
  targets: lustre.hostileTargets,
  counters: lustre.hostileCounters,
  doctor: doctor.hostileTools,
};

for (const [name, run] of Object.entries(outputs)) {
  if (values.format !== undefined && !values.format.split(",").includes(name)) continue;
  const start = process.cpuUsage();
  const report = run(Number(values.mutations), Number(values.seed));
  console.log(name, JSON.stringify(report), `${Math.round(process.cpuUsage(start).user / 1e6)} s of CPU time`);
}
for (const name of values.format?.split(",") ?? readdirSync(join(root, "dist/test/formats"))) {
  const samples = join(root, "dist/test/formats", name, "samples.js");
  if (!existsSync(samples)) continue;
  const { hostileShards } = await import(samples);
  if (hostileShards === undefined) continue;
  const start = process.cpuUsage();
  const progress = (done) => process.stderr.isTTY && process.stderr.write(`\r${name}: ${done}`);
  const seed = Number(values.seed);
  const report = await hostile(formatOf(name), await hostileShards(), Number(values.mutations), { seed, progress });
  const { user } = process.cpuUsage(start);
  console.log(name, JSON.stringify(report), `${Math.round(user / 1e6)} s of CPU time`);
}
