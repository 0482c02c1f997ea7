/**
 * Placement on MooseFS: on which chunk servers the bytes of the files in use lie.
 *
 * Contract: `Places` of storage/places.ts. `mfsfileinfo` is asked in the background, {@link BATCH} files a call, each file once; without
 * it, or while the metadata server does not answer, nothing is known. Of several copies the mount reads any one, and reads on from
 * another where one fails: all of them are named, so that none of them is given more reads than it may have.
 *
 * @example
 * const places = new MooseFsPlaces();
 * places.at(mount).expect(["/mnt/mfs/d/a.tar"]);
 * places.targetsOf("/mnt/mfs/d/a.tar", 0, 8 << 20); // later: ["mfs-10.77.0.11:9422"]
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Learned } from "../storage/learned.ts";
import type { Home, Places } from "../storage/places.ts";
import type { Polite } from "../storage/polite.ts";
import { CHUNK_BYTES, askChunks } from "./chunks.ts";
import type { Chunks } from "./chunks.ts";

/** Files a call: each is a question or two to the metadata server, and one more a chunk, one after the other. */
const BATCH = 64;

export interface MooseFsOptions {
  /** Milliseconds for one call of the tool. @default 10000 */
  timeoutMs?: number;
  /** Caps that its questions count for, as stats. @default no caps */
  polite?: Polite;
}

export class MooseFsPlaces implements Places {
  private readonly files: Learned<Chunks>;

  constructor({ timeoutMs, polite }: MooseFsOptions = {}) {
    this.files = new Learned({
      batch: () => BATCH,
      ask: async (batch) => {
        const paths = batch.map(({ path }) => path);
        const waitMs = polite?.waitMs("stats") ?? 0;
        if (waitMs > 0) await sleep(waitMs, undefined, { ref: false });
        polite?.take("stats", paths.length);
        const asked = await askChunks(paths, timeoutMs);
        return asked && paths.map((path) => named(asked.files.get(path)) ?? (asked.silent ? "silent" : undefined));
      },
    });
  }

  at(): Pick<Home, "requestBytes" | "expect"> {
    return { requestBytes: undefined, expect: (paths) => this.files.expect(paths, "mfs") };
  }

  targetsOf(path: string, offset: number, length: number): readonly string[] | undefined {
    const chunks = this.files.get(path);
    if (chunks === undefined) return undefined;
    const first = Math.floor(offset / CHUNK_BYTES);
    const last = Math.floor((offset + Math.max(1, length) - 1) / CHUNK_BYTES);
    // Nearly every read lies in one chunk.
    const servers = first === last ? chunks[first] : [...new Set(chunks.slice(first, last + 1).flat())];
    return servers === undefined || servers.length === 0 ? undefined : servers;
  }

  close(): void {
    this.files.close();
  }
}

/** Servers of all MooseFS mounts of a node are compared with each other: it rarely has two. */
function named(chunks: Chunks | undefined): Chunks | undefined {
  return chunks?.map((servers) => servers.map((server) => `mfs-${server}`));
}
