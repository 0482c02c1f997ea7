/** Thread that compiles one tokenizer and ends: half a second during which the agent would serve nobody. */
import { parentPort } from "node:worker_threads";
import { toErrorRecord } from "../base/errors.ts";
import type { ErrorRecord } from "../base/errors.ts";
import { compileTokenizer } from "../tokenizer/compile.ts";
import type { TokenizerFiles } from "../tokenizer/compile.ts";
import type { CompiledTokenizer } from "../tokenizer/types.ts";

export type TokenizerAnswer = { compiled: CompiledTokenizer } | { error: ErrorRecord };

export function run(): void {
  const port = parentPort;
  if (port === null) throw new Error("tokenizer-thread must run in a worker");
  port.once("message", (files: TokenizerFiles) => {
    let answer: TokenizerAnswer;
    try {
      answer = { compiled: compileTokenizer(files) };
    } catch (error) {
      answer = { error: toErrorRecord(error) };
    }
    port.postMessage(answer);
  });
}
