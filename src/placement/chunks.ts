/**
 * Chunks: on which servers the chunks of MooseFS files lie, from what `mfsfileinfo` prints. It asks the metadata server through the
 * mount.
 *
 *   d/a.tar:
 *   ⇥chunk 0: 0000000000000005_00000001 / (id:5 ver:1)
 *   ⇥⇥copy 1: 10.77.0.11:9422 (status:VALID)
 *   ⇥chunk 1: empty
 *
 * Contract: the tool has a time limit; a call into a lost mount is left behind. A file of which nothing is printed (deleted, a folder)
 * is unknown, never the others. MooseFS 2 and LizardFS print no status, MooseFS 4 parts of an erasure code beside copies: only addresses
 * are read. Own parser: no library reads this text.
 *
 * @example
 * const files = await askChunks(["/mnt/mfs/d/a.tar"]);
 * files?.get("/mnt/mfs/d/a.tar")?.[0]; // ["10.77.0.11:9422"], of bytes 0 to 64 MiB
 */
import { runTool } from "../base/run-tool.ts";

/** Of every file of MooseFS. Bytes. */
export const CHUNK_BYTES = 64 * 2 ** 20;

/** Servers that hold the bytes of each chunk, one a copy; empty: a hole, or no copy is there now. */
export type Chunks = readonly (readonly string[])[];

/** `silent`: what is not among the files did not answer. */
export interface Asked {
  /** By path as given. */
  files: ReadonlyMap<string, Chunks>;
  silent: boolean;
}

/** Undefined: the tool is not installed. */
export async function askChunks(paths: readonly string[], timeoutMs?: number): Promise<Asked | undefined> {
  const ran = await runTool("mfsfileinfo", ["--", ...paths], { timeoutMs });
  if (ran.missing) return undefined;
  const files = parseChunks(ran.stdout, paths);
  // A metadata server that is being restarted refuses all of them at once.
  return { files, silent: ran.timedOut || (ran.status !== 0 && files.size === 0) };
}

/** In what `mfsfileinfo` prints for `paths`, in their order. */
export function parseChunks(text: string, paths: readonly string[]): Map<string, Chunks> {
  const files = new Map<string, Chunks>();
  let next = 0;
  let chunks: string[][] | undefined;
  for (const line of text.split("\n")) {
    if (!line.startsWith("\t")) {
      const at = line.endsWith(":") ? paths.indexOf(line.slice(0, -1), next) : -1;
      chunks = at < 0 ? undefined : [];
      if (chunks === undefined) continue;
      next = at + 1;
      files.set(paths[at]!, chunks);
      continue;
    }
    const chunk = /^\tchunk (\d+):/.exec(line);
    if (chunk !== null) {
      // Numbered without gaps; of more than a file can have nothing is made room for.
      if (chunks?.length === Number(chunk[1])) chunks.push([]);
      continue;
    }
    const server = /^\t\t.*?: ?(\d+\.\d+\.\d+\.\d+:\d+)\b(?! ?\(status:INVALID)/.exec(line)?.[1];
    if (server !== undefined) chunks?.at(-1)?.push(server);
  }
  return files;
}
