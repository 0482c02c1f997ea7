// `npm run bench:peers [-- --passes 7 --contenders athanor,litdata …]`: the build, two environments with the peers, and
// `athanor bench peers`, which knows the options. Wants a quiet machine: about 25 minutes.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { ensurePeers, ensureSetup, ensureTensorFlow, main, pythonEnv, root } from "./setup.mjs";

await main(async () => {
  await ensureSetup({ python: false });
  const python = await ensurePeers();
  const tf = await ensureTensorFlow();
  const own = ["--python", python, ...(tf === undefined ? [] : ["--tf-python", tf])];
  const args = [join(root, "bin", "athanor.mjs"), "bench", "peers", ...own, ...process.argv.slice(2)];
  return spawnSync(process.execPath, args, { env: pythonEnv(python), stdio: "inherit" }).status ?? 1;
});
