// `npm run bench:limits [-- --data DIR --passes 5]`: the set-up and `athanor bench limits`, over the data that bench:peers
// makes (100 000 samples x 512 as TFRecord) when no other is named. A minute.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ensureSetup, main, root } from "./setup.mjs";

await main(async () => {
  const { python, env } = await ensureSetup();
  const given = process.argv.slice(2);
  if (!given.includes("--data")) {
    const { defaultCacheDir, formatsFolder } = await import(join(root, "dist", "src", "bench", "data.js"));
    const folder = formatsFolder(defaultCacheDir(), 100_000, 512, 1);
    if (!existsSync(join(folder, "tfrecord"))) {
      const args = ["-m", "athanor.bench.formats.data", "--out", folder, "--formats", "tfrecord"];
      const made = spawnSync(python, args, { env, stdio: ["ignore", "ignore", "inherit"] });
      if (made.status !== 0) return made.status ?? 1;
    }
    given.unshift("--data", join(folder, "tfrecord"));
  }
  const args = [join(root, "bin", "athanor.mjs"), "bench", "limits", "--python", python, ...given];
  return spawnSync(process.execPath, args, { env, stdio: "inherit" }).status ?? 1;
});
