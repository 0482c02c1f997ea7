// `npm run bench:formats [-- --passes 7 --formats parquet,zarr …]`: the build, an environment with the formats' own readers, and
// `athanor bench formats`, which knows the options. About 15 minutes for all formats.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { ensurePeers, ensureSetup, main, pythonEnv, root } from "./setup.mjs";

await main(async () => {
  await ensureSetup({ python: false });
  const python = await ensurePeers();
  const args = [join(root, "bin", "athanor.mjs"), "bench", "formats", "--python", python, ...process.argv.slice(2)];
  return spawnSync(process.execPath, args, { env: pythonEnv(python), stdio: "inherit" }).status ?? 1;
});
