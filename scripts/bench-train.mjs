// `npm run bench:train [-- --passes 5 --seconds 5 --data DIR --only rate,au,ranks,opens]`: the set-up, the data of the
// acceptance (100 000 samples x 512 in 10 shards, made once in the cache folder), the benchmark, and a verdict for each bar.
// Exit code 1 when a bar is missed. Wants a quiet machine: about 8 minutes.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ensureSetup, main, root } from "./setup.mjs";

const { values: flags } = parseArgs({
  options: {
    data: { type: "string" },
    passes: { type: "string", default: "5" },
    seconds: { type: "string", default: "5" },
    only: { type: "string", default: "rate,au,ranks,opens" },
  },
});

const verdicts = [];
/** A bar: `value` at least (or, `below`, at most) `bar`. */
function bar(what, value, limit, below = false) {
  const ok = below ? value <= limit : value >= limit;
  verdicts.push({
    ok,
    text: `${ok ? "PASS" : "FAIL"}  ${what}: ${round(value)} (${below ? "at most" : "at least"} ${limit})`,
  });
}
const round = (value) => (Math.abs(value) >= 100 ? Math.round(value) : Number(value.toFixed(2)));

await main(async () => {
  const { python, env } = await ensureSetup();
  Object.assign(process.env, env);
  const bench = (name) => import(join(root, "dist", "src", "bench", `${name}.js`));
  const { defaultCacheDir } = await bench("data");
  const { benchTrain } = await bench("train");
  const { compareRanks } = await bench("compare-ranks");
  const { agentOpens } = await bench("agent-opens");
  const { reportText, comparisonText } = await bench("table");

  const cacheDir = defaultCacheDir();
  const source = flags.data ?? (await madeData(python, cacheDir));
  const watch = { say: (line) => process.stderr.write(`bench: ${line}\n`) };
  const only = new Set(flags.only.split(","));
  const options = {
    source,
    python,
    cacheDir,
    batches: [32, 256],
    ranks: 1,
    stepMs: 0,
    seconds: Number(flags.seconds),
    passes: Number(flags.passes),
    width: 512,
    contenders: "naive,memmap,memmap_batch,athanor",
    mode: "both",
    client: "torch",
    cold: false,
    seed: 1,
  };

  if (only.has("rate")) {
    const report = await benchTrain(options, watch);
    console.log(`${reportText(report)}\n`);
    for (const { setting, rows } of report.tables) {
      for (const row of rows.filter(({ name }) => name.startsWith("athanor"))) {
        const at = `${row.name}, batch ${setting.batch}`;
        bar(`${at}: samples/s against the map-style memory map`, row.toMemmap.median, 1.5);
        if (setting.batch === 32) bar(`${at}: samples/s against naive`, row.toNaive.median, 300);
        bar(`${at}: first batch, seconds, agent start included`, row.firstSeconds.median, 1, true);
      }
    }
  }
  if (only.has("au")) {
    const report = await benchTrain(
      { ...options, find: { au: 65, contender: "memmap" }, contenders: "naive,memmap,athanor" },
      watch,
    );
    console.log(`${reportText(report)}\n`);
    for (const { setting, rows } of report.tables) {
      for (const row of rows.filter(({ name }) => name.startsWith("athanor"))) {
        const what = `${row.name}, batch ${setting.batch}: AU % where the memory map has 65`;
        if (setting.batch === 256) bar(what, row.au.median, 98);
        else verdicts.push({ ok: true, text: `      ${what}: ${round(row.au.median)} (printed)` });
      }
    }
  }
  if (only.has("ranks")) {
    const compared = await compareRanks({ ...options, batch: 32, mode: "window", worlds: [1, 8] }, watch);
    console.log(`${comparisonText(compared)}\n`);
    bar("8 ranks against 1: agent memory", compared.agentMemory.median, 1.3, true);
    bar("8 ranks against 1: agent CPU a sample", compared.agentCpu.median, 1.3, true);
  }
  if (only.has("opens")) {
    const { files } = await agentOpens({ source, python });
    bar("files that an agent opens until the first batch", files.length, 60, true);
  }
  for (const { text } of verdicts) console.log(text);
  return verdicts.every(({ ok }) => ok) ? 0 : 1;
});

/** Made under a temporary name and renamed when whole. */
async function madeData(python, cacheDir) {
  const folder = join(cacheDir, "data-100000x512-seed1");
  if (existsSync(folder)) return folder;
  mkdirSync(cacheDir, { recursive: true });
  const part = `${folder}.${process.pid}.part`;
  process.stderr.write("bench: making 100 000 samples x 512 (134 MB)\n");
  const child = spawn(python, ["-m", "athanor.bench.data", "--out", part], { stdio: "inherit" });
  const code = await new Promise((resolve) => child.on("close", resolve));
  if (code === 0) renameSync(part, folder);
  else rmSync(part, { recursive: true, force: true });
  if (code !== 0) throw new Error(`the data could not be made: exit code ${code}`);
  return folder;
}
