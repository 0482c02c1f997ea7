/**
 * Tokenizers of an agent: read from `tokenizer.json` or a local model folder, compiled once for all sessions that name the same file.
 */
import { AthanorError } from "../base/errors.ts";
import { spawnThread } from "../base/threads.ts";
import { NotFound } from "../storage/errors.ts";
import type { Storage } from "../storage/types.ts";
import type { CompiledTokenizer } from "../tokenizer/types.ts";
import type { TokenizerFiles } from "../tokenizer/compile.ts";
import type { TokenizerAnswer } from "./tokenizer-thread.ts";

/** Compiled tokenizers that are kept: some 10 MB each. */
const KEPT = 4;

export class Tokenizers {
  private readonly storage: Storage;
  /** By path and version; the last used is the last. */
  private readonly compiled = new Map<string, Promise<CompiledTokenizer>>();

  constructor(storage: Storage) {
    this.storage = storage;
  }

  async open(path: string): Promise<CompiledTokenizer> {
    const file = (await this.storage.stat(path)).kind === "folder" ? `${path}/tokenizer.json` : path;
    const json = await this.read(file);
    const config = await this.read(file.replace(/[^/]*$/, "tokenizer_config.json")).catch((error: unknown) => {
      if (error instanceof NotFound) return undefined;
      throw error;
    });
    const key = JSON.stringify([file, json.version, config?.version]);
    const known = this.compiled.get(key) ?? compile({ file, json: json.bytes, config: config?.bytes });
    this.compiled.delete(key);
    this.compiled.set(key, known);
    known.catch(() => this.compiled.delete(key));
    for (const old of [...this.compiled.keys()].slice(0, -KEPT)) this.compiled.delete(old);
    return known;
  }

  private async read(file: string): Promise<{ bytes: Uint8Array; version: string }> {
    const object = await this.storage.open(file);
    try {
      const bytes = new Uint8Array(object.size);
      await object.readInto(bytes, 0);
      return { bytes, version: `${object.version.size} ${object.version.mtimeNs}` };
    } finally {
      await object.close();
    }
  }
}

async function compile(files: TokenizerFiles): Promise<CompiledTokenizer> {
  const worker = spawnThread("tokenizer", new URL("./tokenizer-thread.js", import.meta.url));
  try {
    const answer = await new Promise<TokenizerAnswer>((resolve, reject) => {
      worker.once("message", resolve);
      worker.once("error", reject);
      worker.postMessage(files);
    });
    if ("error" in answer) throw AthanorError.fromRecord(answer.error);
    return answer.compiled;
  } finally {
    await worker.terminate();
  }
}
