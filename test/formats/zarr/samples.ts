// Zarr folders of test/fixtures as shards in memory.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { TestShard } from "../blocks.ts";

export const FIXTURES = fileURLToPath(new URL("../../../../test/fixtures/", import.meta.url));

/** `folder`: below test/fixtures. */
export function zarrFolder(folder: string): TestShard {
  const name = folder.split("/").at(-1)!;
  const files = (readdirSync(join(FIXTURES, folder), { recursive: true }) as string[])
    .filter((path) => statSync(join(FIXTURES, folder, path)).isFile())
    .map((path) => ({ path: `${name}/${path}`, bytes: new Uint8Array(readFileSync(join(FIXTURES, folder, path))) }))
    .sort((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)));
  return { path: name, files, folder: true };
}

/** The shard with one file as `change` makes it; undefined takes the file away. */
export function changed(
  shard: TestShard,
  path: string,
  change: (bytes: Uint8Array) => Uint8Array | undefined,
): TestShard {
  const files = shard.files.flatMap((file) => {
    const bytes = file.path === `${shard.path}/${path}` ? change(file.bytes) : file.bytes;
    return bytes === undefined ? [] : [{ ...file, bytes }];
  });
  return { ...shard, files };
}

/** Metadata with some members replaced. */
export function withMembers(members: object): (bytes: Uint8Array) => Uint8Array {
  return (bytes) =>
    Buffer.from(JSON.stringify({ ...(JSON.parse(Buffer.from(bytes).toString()) as object), ...members }));
}

/** Also for `npm run test:hostile`. */
export function hostileShards(): TestShard[] {
  return [zarrFolder("zarr/v2.zarr"), zarrFolder("zarr/v3.zarr")];
}
