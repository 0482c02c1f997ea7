/**
 * The demo: real text → 20 TFRecord shards → index → plan → a tiny DeepSeek trained by DeepSpeed on two CPU ranks,
 * whose agent is killed on the way and which is itself killed and resumed → proof checked → table.
 *
 * Every step is the command that a user would type, run as a process of its own; what is shown is what it printed.
 * Nothing is left behind: process groups are killed with us, and the folder is removed unless it was asked for.
 *
 * @example
 * await runDemo({ cli: "dist/src/cli/main.js", quick: true, keep: false, say: console.log });
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { execFileSync } from "node:child_process";
import { pythonCode, pythonEnv, pythonModule } from "../base/python.ts";
import { Usage } from "../base/usage.ts";
import { freePort } from "../base/free-port.ts";
import { agentsOf, Children } from "./children.ts";
import { DemoPython, DemoStep } from "./errors.ts";

export interface DemoOptions {
  /** The running command line program, for the steps that are commands of it. */
  cli: string;
  /** Eight steps and no resume: under a minute. */
  quick: boolean;
  /** Where everything goes, and stays. @default a folder below the system's temporary one, removed at the end */
  dir?: string;
  /** Folder of text to train on. @default Python's own library */
  data?: string;
  /** Do not remove the temporary folder. */
  keep: boolean;
  say: (line: string) => void;
}

interface Plan {
  steps: number;
  saveSteps: number;
  megabytes: number;
  killAgentAt: number;
  /** Step after which everything is killed; null: never. */
  killAllAt: number | null;
  bench: string[];
}

const RANKS = 2;
const BATCH = 1;
const ACCUMULATION = 2;
const FULL: Plan = {
  steps: 40,
  saveSteps: 10,
  megabytes: 8,
  killAgentAt: 8,
  killAllAt: 24,
  bench: ["--batch", "32", "--mode", "window", "--seconds", "2", "--passes", "2"],
};
const QUICK: Plan = {
  steps: 8,
  saveSteps: 4,
  megabytes: 2,
  killAgentAt: 3,
  killAllAt: null,
  bench: ["--batch", "32", "--mode", "window", "--seconds", "1", "--passes", "1"],
};

const examples = fileURLToPath(new URL("../../../examples/deepseek", import.meta.url));
const client = fileURLToPath(new URL("../../../python/src", import.meta.url));

export async function runDemo(options: DemoOptions): Promise<void> {
  if (options.dir !== undefined && existsSync(options.dir) && readdirSync(options.dir).length > 0) {
    throw new Usage(`--dir must be a new or an empty folder, ${options.dir} holds files`);
  }
  const python = findPython();
  const dir = options.dir === undefined ? mkdtempSync(join(tmpdir(), "athanor-demo-")) : resolve(options.dir);
  mkdirSync(dir, { recursive: true });
  const job = `demo-${process.pid}`;
  const children = new Children(join(dir, "demo.log"));
  let failed = true;
  const leave = (): void => {
    children.killAll();
    for (const agent of agentsOf(job)) process.kill(agent, "SIGKILL");
    rmSync(`/dev/shm/athanor-${process.getuid?.()}/${job}`, { recursive: true, force: true });
    if (options.dir === undefined && !options.keep && !failed) rmSync(dir, { recursive: true, force: true });
  };
  const interrupted = (): void => {
    failed = false; // nothing to look into
    leave();
    process.exit(130);
  };
  process.once("SIGINT", interrupted).once("SIGTERM", interrupted);
  try {
    await new Demo(options, options.quick ? QUICK : FULL, { python, dir, job, children }).run();
    failed = false;
  } finally {
    process.off("SIGINT", interrupted).off("SIGTERM", interrupted);
    leave();
    if (options.dir !== undefined || options.keep || failed) options.say(`everything is in ${dir}`);
  }
}

interface Place {
  python: string;
  dir: string;
  job: string;
  children: Children;
}

class Demo {
  readonly #options: DemoOptions;
  readonly #plan: Plan;
  readonly #at: Place;
  readonly #data: string;
  readonly #out: string;
  readonly #env: NodeJS.ProcessEnv;
  readonly #began = Date.now();

  constructor(options: DemoOptions, plan: Plan, place: Place) {
    this.#options = options;
    this.#plan = plan;
    this.#at = place;
    this.#data = join(place.dir, "data");
    this.#out = join(place.dir, "output");
    this.#env = {
      ...process.env,
      ATHANOR_PYTHON: place.python,
      ATHANOR_JOB_ID: place.job,
      PATH: `${dirname(place.python)}:${process.env["PATH"] ?? ""}`, // DeepSpeed looks for ninja there
      PYTHONPATH: [client, pythonEnv()["PYTHONPATH"]].filter(Boolean).join(":"),
      PYTHONUNBUFFERED: "1",
      HF_HUB_OFFLINE: "1",
      DS_ACCELERATOR: "cpu",
      CUDA_VISIBLE_DEVICES: "",
      OMP_NUM_THREADS: String(Math.max(1, Math.min(4, Math.floor(availableParallelism() / RANKS)))),
    };
  }

  async run(): Promise<void> {
    const { steps, megabytes, bench } = this.#plan;
    const text = this.#options.data === undefined ? [] : ["--source", this.#options.data];
    this.#title("Real text, a byte-level tokeniser, 20 TFRecord shards");
    await this.#python("make_corpus.py", ["--out", this.#at.dir, "--megabytes", String(megabytes), ...text]);
    this.#title("Index: made once, beside the data");
    await this.#athanor(["index", this.#data]);
    this.#title("Plan: what the run will cost");
    await this.#athanor([
      "plan",
      this.#data,
      "--ranks",
      String(RANKS),
      "--batch",
      String(BATCH),
      "--grad-accum",
      String(ACCUMULATION),
    ]);
    this.#title(`Train: DeepSeek-V2 of 8.6 M parameters, DeepSpeed ZeRO-2, ${RANKS} CPU ranks, ${steps} steps`);
    await this.#train();
    this.#title("Proof: every sample that the ranks were given, recomputed from the index");
    await this.#athanor(["state", "verify", this.#out, "--data", this.#data]);
    this.#title("The same steps without a model, a kill or a stop: is it the same proof?");
    const global = RANKS * BATCH * ACCUMULATION;
    await this.#python("replay.py", [
      "--data_dir",
      this.#data,
      "--world",
      String(RANKS),
      "--batch_size",
      String(BATCH),
      "--global_batch_size",
      String(global),
      "--steps",
      String(steps),
      "--proof_dir",
      join(this.#at.dir, "unbroken"),
      "--compare",
      join(this.#out, "proof"),
    ]);
    this.#title("What it brings: the same files read by three loaders");
    await this.#athanor(["bench", "train", "--data", this.#data, "--cache-dir", join(this.#at.dir, "bench"), ...bench]);
    const { say } = this.#options;
    say("");
    say(
      `done in ${Math.round((Date.now() - this.#began) / 1000)} s. With data of your own (a folder of TFRecord shards):`,
    );
    say(`  ${process.execPath} ${this.#options.cli} index DATA`);
    say(
      `  ${join(dirname(this.#at.python), "deepspeed")} --num_gpus=8 ${join(examples, "train.py")} --data_dir DATA --model_name_or_path MODEL --output_dir output ` +
        "--per_device_train_batch_size 32 --gradient_accumulation_steps 4 --learning_rate 3e-4 --num_train_epochs 3 " +
        `--deepspeed ${join(examples, "ds_config.json")}`,
    );
  }

  async #train(): Promise<void> {
    const { say } = this.#options;
    const { killAgentAt, killAllAt, steps } = this.#plan;
    let killed: number[] = [];
    const first = await this.#launch([], (step, kill) => {
      if (step === killAgentAt) {
        killed = agentsOf(this.#at.job);
        say(`  » kill -9 ${killed.join(" ")}: the agent dies in the middle of the run`);
        for (const agent of killed) process.kill(agent, "SIGKILL");
      }
      if (step === killAllAt) {
        const all = agentsOf(this.#at.job);
        say(`  » kill -9: agent, launcher and both ranks die after step ${step}`);
        for (const agent of all) process.kill(agent, "SIGKILL");
        kill();
      }
    });
    if (killed.length === 0) throw this.#failure(`no agent of job ${this.#at.job} was running at step ${killAgentAt}`);
    if (killAllAt === null) {
      if (first !== 0) throw this.#failure(`training ended with exit code ${first}`);
    } else {
      say("  » the same line again, with --resume");
      const second = await this.#launch(["--resume"], () => undefined);
      if (second !== 0) throw this.#failure(`the resumed training ended with exit code ${second}`);
    }
    const losses = new Map<number, number>();
    for (const line of readFileSync(join(this.#out, "log.jsonl"), "utf8").trimEnd().split("\n")) {
      const { step, loss } = JSON.parse(line) as { step: number; loss: number };
      losses.set(step, loss);
    }
    const [from, to] = [losses.get(1) ?? NaN, losses.get(steps) ?? NaN];
    if (!(to < from)) throw this.#failure(`the loss did not fall: ${from} at step 1, ${to} at step ${steps}`);
    say(`  loss ${from.toFixed(3)} → ${to.toFixed(3)} in ${steps} steps`);
  }

  /** One start of DeepSpeed. */
  async #launch(more: string[], onStep: (step: number, kill: () => void) => void): Promise<number> {
    const line = [
      "--data_dir",
      this.#data,
      "--model_name_or_path",
      join(examples, "tiny"),
      "--output_dir",
      this.#out,
      "--per_device_train_batch_size",
      String(BATCH),
      "--gradient_accumulation_steps",
      String(ACCUMULATION),
      "--learning_rate",
      "3e-3",
      "--num_train_epochs",
      "1",
      "--deepspeed",
      join(examples, "ds_config.json"),
      "--max_steps",
      String(this.#plan.steps),
      "--save_steps",
      String(this.#plan.saveSteps),
      ...more,
    ];
    this.#command(["deepspeed", `--num_gpus=${RANKS}`, join(examples, "train.py"), ...line]);
    const port = await freePort();
    const args = [...pythonModule("deepspeed.launcher.runner"), `--num_gpus=${RANKS}`, "--master_port", String(port)];
    return this.#at.children.run(this.#at.python, [...args, join(examples, "train.py"), ...line], {
      env: this.#env,
      cwd: this.#at.dir, // the launcher starts a launcher by -m, and reads .deepspeed_env
      onLine: (text, kill) => {
        if (/^\[train\] |the agent is gone/.test(text)) this.#options.say(`  ${text.replace("[train] ", "")}`);
        const step = /^\[train\] step +(\d+) /.exec(text)?.[1];
        if (step !== undefined) onStep(Number(step), kill);
      },
    });
  }

  async #python(script: string, args: string[]): Promise<void> {
    await this.#step(["python", script, ...args], this.#at.python, [join(examples, script), ...args]);
  }

  async #athanor(args: string[]): Promise<void> {
    await this.#step(["athanor", ...args], process.execPath, [this.#options.cli, ...args]);
  }

  async #step(shown: string[], command: string, args: string[]): Promise<void> {
    this.#command(shown);
    const code = await this.#at.children.run(command, args, {
      env: this.#env,
      onLine: (text) => this.#options.say(`  ${text}`),
    });
    if (code !== 0) throw this.#failure(`\`${shown.slice(0, 3).join(" ")}\` ended with exit code ${code}`);
  }

  #failure(what: string): Error {
    const log = join(this.#at.dir, "demo.log");
    return new DemoStep(`${what}; end of the log:\n${this.#at.children.tail(30)}`, { file: log });
  }

  #title(text: string): void {
    this.#options.say(`\n${text}  [${Math.round((Date.now() - this.#began) / 1000)} s]`);
  }

  #command(words: string[]): void {
    this.#options.say(`$ ${words.map((word) => word.replace(`${examples}/`, "")).join(" ")}`);
  }
}

/** A Python that has what training needs: looked up, not imported, which takes seconds. */
function findPython(): string {
  const named = process.env["ATHANOR_PYTHON"];
  const needed = ["torch", "deepspeed", "transformers", "tokenizers", "numpy"];
  const probe =
    "import importlib.util as u, sys; print(sys.executable); " +
    `print(*[m for m in ${JSON.stringify(needed)} if u.find_spec(m) is None])`;
  const name = named ?? "python3";
  let answer: string;
  try {
    answer = execFileSync(name, pythonCode(probe), {
      env: pythonEnv(),
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  } catch (error) {
    throw new DemoPython(`${name} cannot be run`, {}, "`npm run demo` in a clone sets one up", error);
  }
  const [executable = name, missing = ""] = answer.split("\n");
  if (missing !== "") {
    throw new DemoPython(
      `${executable} lacks ${missing.split(" ").join(", ")}`,
      {},
      "`npm run demo` in a clone sets a Python up; or name one with ATHANOR_PYTHON",
    );
  }
  return executable;
}
