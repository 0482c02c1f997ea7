// `npm run bench:exactness [-- --kills 3 --only athanor,litdata …]`: the build, an environment with the peers, and
// bench/exactness/run.py, which knows the options. Exit 1 when Athanor lost or repeated a sample. Half an hour on two cores.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { ensurePeers, ensureSetup, main, pythonEnv, root } from "./setup.mjs";

await main(async () => {
  await ensureSetup({ python: false });
  const python = await ensurePeers();
  const args = [join(root, "bench", "exactness", "run.py"), ...process.argv.slice(2)];
  return spawnSync(python, args, { env: pythonEnv(python), stdio: "inherit" }).status ?? 1;
});
