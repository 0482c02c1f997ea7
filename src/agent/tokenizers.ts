/**
 * Tokenizers of an agent: read from `tokenizer.json` or a local model folder, compiled once for all sessions that name the same file.
 */
import { AthanorError } from "../base/errors.ts";
import { spawnThread } from "../base/threads.ts";
import { chatSpec, type ChatRequest } from "../feed/chat-view.ts";
import { NotFound } from "../storage/errors.ts";
import type { Storage } from "../storage/types.ts";
import { templateText } from "../tokenizer/chat/config.ts";
import { TokenizerUnreadable } from "../tokenizer/errors.ts";
import type { CompiledTokenizer } from "../tokenizer/types.ts";
import type { TokenizerFiles } from "../tokenizer/compile.ts";
import type { TokenizerAnswer } from "./tokenizer-thread.ts";

/** Compiled tokenizers that are kept: some 10 MB each. */
const KEPT = 4;
/** Names of files in a message. */
const SHOWN = 12;

interface AskedChat {
  messages_column?: string | null | undefined;
  tools_column?: string | null | undefined;
  template?: string | null | undefined;
  options?: string;
}

export class Tokenizers {
  private readonly storage: Storage;
  /** By path and version; the last used is the last. */
  private readonly compiled = new Map<string, Promise<CompiledTokenizer>>();

  constructor(storage: Storage) {
    this.storage = storage;
  }

  async open(path: string): Promise<CompiledTokenizer> {
    const isFolder = await this.isFolder(path);
    const file = isFolder ? `${path}/tokenizer.json` : path;
    const json = isFolder ? await this.readIn(path, file) : await this.read(file);
    const config = await this.readBeside(file, "tokenizer_config.json");
    const template = await this.readBeside(file, "chat_template.jinja");
    const key = JSON.stringify([file, json.version, config?.version, template?.version]);
    const files = { file, json: json.bytes, config: config?.bytes, template: template?.bytes };
    const known = this.compiled.get(key) ?? compile(files);
    this.compiled.delete(key);
    this.compiled.set(key, known);
    known.catch(() => this.compiled.delete(key));
    for (const old of [...this.compiled.keys()].slice(0, -KEPT)) this.compiled.delete(old);
    return known;
  }

  private async isFolder(path: string): Promise<boolean> {
    try {
      return (await this.storage.stat(path)).kind === "folder";
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
      throw new NotFound(
        "no such tokenizer.json or model folder",
        { file: path },
        "give a local path: names of a model hub are not taken, since nothing is downloaded; tokenizer.save_pretrained writes such a folder",
        error,
      );
    }
  }

  /** What is asked for of conversations; `template` with a `/` is the path of a file. */
  async chat(
    { messages_column: column, tools_column: tools, template, options = "{}" }: AskedChat,
    tokenizer: CompiledTokenizer,
  ): Promise<ChatRequest> {
    const source = template?.includes("/") === true ? await this.text(template) : undefined;
    return {
      column: column ?? undefined,
      tools: tools ?? undefined,
      ...chatSpec({ template: template ?? "default", source, options }, tokenizer),
    };
  }

  private async text(path: string): Promise<string> {
    const { bytes } = await this.read(path);
    return templateText(bytes, path);
  }

  /** A folder that is no model's says what it holds. */
  private async readIn(folder: string, file: string): ReturnType<Tokenizers["read"]> {
    try {
      return await this.read(file);
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
      const names = await this.storage.names(folder, { files: /^[^/]*$/, folders: /^$/ });
      const shown = names.sort().slice(0, SHOWN).join(", ") + (names.length > SHOWN ? ", …" : "");
      throw new TokenizerUnreadable(
        `the folder has no tokenizer.json, it holds ${shown || "nothing"}`,
        { file: folder },
        "give the folder of a model with a fast tokenizer (tokenizer.save_pretrained writes one)",
        error,
      );
    }
  }

  private async readBeside(file: string, name: string): Promise<Awaited<ReturnType<Tokenizers["read"]>> | undefined> {
    try {
      return await this.read(file.replace(/[^/]*$/, name));
    } catch (error) {
      if (error instanceof NotFound) return undefined;
      throw error;
    }
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
