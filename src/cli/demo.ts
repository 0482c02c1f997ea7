/** `athanor demo`: the whole thing on this machine. */
import type { Command } from "commander";
import { runDemo } from "../pipeline/demo.ts";

export function register(program: Command): void {
  program
    .command("demo")
    .description("the whole thing on this machine: data, index, agent, training, kills, resume, proof, table")
    .option("--quick", "eight training steps and no resume: under a minute", false)
    .option("--dir <folder>", "put everything there and leave it (default: a temporary folder, removed at the end)")
    .option("--data <folder>", "train on the text files below this folder (default: Python's own library)")
    .option("--keep", "do not remove the temporary folder", false)
    .action(async (options: { quick: boolean; dir?: string; data?: string; keep: boolean }) => {
      await runDemo({ ...options, cli: process.argv[1] ?? "", say: (line) => console.log(line) });
    });
}
