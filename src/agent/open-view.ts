/**
 * Opening a view: from a session's hello to an index, an order and a layout. The index is made here if it is missing
 * and this node holds global rank 0; other nodes wait for it. Sets above 100 GB are refused: their index is made before.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { formatSize } from "../base/units.ts";
import { buildIndex } from "../dataset/index-build.ts";
import { openIndex } from "../dataset/index-read.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import type { GroupView } from "../feed/group.ts";
import { Ledger } from "../feed/ledger.ts";
import { openOrder } from "../feed/open-order.ts";
import { SOURCE_NAME, viewsOf } from "../feed/order-view.ts";
import type { NamedIndex, SourceViews } from "../feed/order-view.ts";
import { Quarantine } from "../feed/quarantine.ts";
import type { QuarantineOptions } from "../feed/quarantine.ts";
import type { TextRequest } from "../feed/text.ts";
import { planOrder } from "../order/job.ts";
import type { Job, Phase, PlannedOrder } from "../order/job.ts";
import { parseState } from "../order/state.ts";
import { Unsupported } from "../formats/errors.ts";
import type { PosixStorage } from "../storage/posix.ts";
import { BatchArithmetic, IndexTooLarge, ProtocolMessage } from "./errors.ts";
import type { Hello } from "./messages.ts";
import { Tokenizers } from "./tokenizers.ts";

const MAX_BUILD_BYTES = 100e9;
const WAIT_MS = 1000;

export type Progress = (stage: string, done: number, total: number) => void;

/** Who waits for a view: is told how far it is, says whether it still waits, and whether it may have the index made. */
export interface Waiter {
  progress: Progress;
  alive: () => boolean;
  builds: () => boolean;
}

export interface OpenedView extends GroupView {
  plan: PlannedOrder;
  /** Position that the state names, or the order's start. */
  position: number;
}

/** An attempt ended because all who waited for it were gone. */
class Unwanted extends ProtocolMessage {}

export class ViewOpener {
  private readonly storage: PosixStorage;
  private readonly tokenizers: Tokenizers;
  /** Sets being opened: all sessions of a node share one attempt, and one index build. */
  private readonly indexes = new Map<string, Promise<DatasetIndex>>();
  private readonly listeners = new Map<string, Set<Waiter>>();

  constructor(storage: PosixStorage) {
    this.storage = storage;
    this.tokenizers = new Tokenizers(storage);
  }

  async open(hello: Hello, waiter: Waiter): Promise<OpenedView> {
    const { view: request } = hello;
    this.storage.forget();
    const asked = sourcesOf(hello);
    const { quarantine } = hello;
    const ledger = quarantine === null ? undefined : await Ledger.open(quarantine.ledger_dir, quarantine.quota);
    const named = await Promise.all(
      asked.map(async (source) => ({ name: source.name, index: await this.index(source, keepsBad(hello), waiter) })),
    );
    const text = request.tokenizer === null ? undefined : await this.text(request.tokenizer);
    if (text !== undefined && hello.mix?.by === "tokens") {
      throw new Unsupported(
        "weights by tokens need counts of tokens, and the index of text has none",
        {},
        "weigh the sources of the mixture by samples",
      );
    }
    const state = hello.state === null || hello.state === undefined ? undefined : parseState(hello.state);
    const { views, layout } = await viewsOf(
      named,
      {
        columns: request.columns ?? undefined,
        maxLength: request.max_length,
        padId: request.pad_id ?? text?.tokenizer.pad ?? 0,
        strict: request.strict,
        sampleRule: request.sample_rule ?? undefined,
        text,
      },
      this.storage,
      state?.sources,
    );
    const job = jobOf(hello, named, views);
    const plan = planOrder(job, state, hello.override);
    checkSteps(hello, plan);
    const opened = await openOrder(plan, named, views, job.options, this.storage, layout);
    if (ledger !== undefined) {
      opened.clocks.badRecords = ledger.distinct;
      for (const view of opened.sources) {
        // Nothing stands in for samples of tokens: a bad id is the writer's fault, and in all of them.
        if (view !== undefined && !view.source.isCut)
          view.quarantine = new Quarantine(view.source, layout, ledger, replaces(hello));
      }
    }
    return { ...opened, plan, layout, position: plan.position };
  }

  private async text(asked: NonNullable<Hello["view"]["tokenizer"]>): Promise<TextRequest> {
    return {
      tokenizer: await this.tokenizers.open(asked.path),
      column: asked.text_column ?? undefined,
      truncationSide: asked.truncation_side,
      around: asked.special_tokens,
      parseSpecial: asked.parse_special,
    };
  }

  private async index(source: AskedSource, keepBad: boolean, waiter: Waiter): Promise<DatasetIndex> {
    const key = JSON.stringify([source.path, source.index_dir, keepBad]);
    const listeners = this.listeners.get(key) ?? new Set<Waiter>();
    this.listeners.set(key, listeners);
    listeners.add(waiter);
    let opening = this.indexes.get(key);
    if (opening === undefined) {
      opening = this.openOrBuild(source, keepBad, {
        progress: (stage, done, total) => {
          for (const listener of listeners) listener.progress(stage, done, total);
        },
        alive: () => [...listeners].some((listener) => listener.alive()),
        builds: () => [...listeners].some((listener) => listener.builds()),
      });
      this.indexes.set(key, opening);
      // Not kept beyond the attempt: the next loader of this node looks at the files again.
      void opening.then(
        () => this.indexes.delete(key),
        () => this.indexes.delete(key),
      );
    }
    try {
      return await opening;
    } catch (error) {
      // It was being given up when this one came to wait for it: a launch behind one that was killed.
      if (!(error instanceof Unwanted) || !waiter.alive()) throw error;
      return await this.index(source, keepBad, waiter);
    } finally {
      listeners.delete(waiter);
      if (listeners.size === 0 && this.listeners.get(key) === listeners) this.listeners.delete(key);
    }
  }

  private async openOrBuild(
    { path: source, index_dir: indexDir }: AskedSource,
    keepBad: boolean,
    { progress, alive, builds }: Waiter,
  ): Promise<DatasetIndex> {
    const place = { storage: this.storage, ...(indexDir === null ? {} : { indexDir }) };
    for (;;) {
      const index = await openIndex(source, place);
      if (index !== undefined) return index;
      // A rank that may build it can come behind one that may not.
      if (builds()) {
        return await buildIndex(source, {
          ...place,
          // Bad records stay in the index as records; the feed names each that it replaces.
          onBad: keepBad ? () => undefined : undefined,
          progress: (done, total) => {
            if (!alive()) throw new Unwanted("nobody waits for this index any more");
            if (total > MAX_BUILD_BYTES) refuseBuild(source, indexDir, total);
            progress("index", done, total);
          },
        });
      }
      if (!alive()) throw new Unwanted("nobody waits for this index any more");
      progress("wait for index", 0, 0);
      await sleep(WAIT_MS);
    }
  }
}

/** The job trains on data with bad records. */
function keepsBad(hello: Hello): boolean {
  return hello.quarantine?.on_corrupt === "replace";
}

function replaces({ quarantine, view }: Hello): QuarantineOptions {
  return {
    content: quarantine?.on_corrupt === "replace",
    io: quarantine?.on_io_error === "replace",
    strict: view.strict,
  };
}

function refuseBuild(source: string, indexDir: string | null, bytes: number): never {
  throw new IndexTooLarge(
    `the data has no index, and ${formatSize(bytes)} are too many to read at the start of a job`,
    { file: source },
    `run \`athanor index ${source}${indexDir === null ? "" : ` --index-dir ${indexDir}`}\` once before`,
  );
}

interface AskedSource {
  name: string;
  path: string;
  index_dir: string | null;
}

function sourcesOf({ mix, view }: Hello): AskedSource[] {
  return mix?.sources ?? [{ name: SOURCE_NAME, path: view.source, index_dir: view.index_dir }];
}

function jobOf({ order, mix, view }: Hello, named: readonly NamedIndex[], views: readonly SourceViews[]): Job {
  const options: Job["options"] = {
    seed: BigInt(order.seed),
    shuffle: order.shuffle,
    unit: order.unit,
    last: order.last,
  };
  if (order.shuffle_memory !== null) options.shuffleMemory = order.shuffle_memory;
  if (order.lanes !== null) options.lanes = order.lanes;
  if (order.window !== null) options.window = order.window;
  const phases = mix?.phases ?? [{ from: 0, weights: [1] }];
  const wrong = phases.find(({ weights }) => weights.length !== named.length);
  if (wrong !== undefined) {
    throw new ProtocolMessage(`a phase has ${wrong.weights.length} weights for ${named.length} sources`);
  }
  return {
    sources: named.map(({ name }, i) => ({ name, view: views[i]!.view, past: views[i]!.past.map(({ view }) => view) })),
    phases: mix?.by === "tokens" ? phases.map((phase) => bySamples(phase, views, view.max_length)) : phases,
    ramp: (order.ramp ?? [[0, order.global_batch] as const]).map(([from, size]) => ({ from, size })),
    options,
  };
}

/** Weights by tokens as weights by samples: a sample holds its source's mean tokens, at most what a row holds. */
function bySamples({ from, weights }: Phase, views: readonly SourceViews[], maxLength: number): Phase {
  return {
    from,
    weights: weights.map((weight, i) => {
      const { records, tokens } = views[i]!.index.totals;
      return weight / Math.max(Math.min(tokens / records, maxLength), 1);
    }),
  };
}

/** Steps must fit every optimizer batch that lies ahead. */
function checkSteps({ world, batch_size: batch, mode, order }: Hello, { segments, position }: PlannedOrder): void {
  const step = world * batch;
  if (mode !== "stream" || order.last === "pad") return;
  const ahead = segments.filter((_, s) => (segments[s + 1]?.from ?? Infinity) > position);
  const wrong = ahead.find(({ globalBatch }) => globalBatch % step !== 0);
  if (wrong === undefined) return;
  throw new BatchArithmetic(
    `global batch ${wrong.globalBatch} (from sample ${wrong.from}) is not a multiple of world size × batch size = ` +
      `${world} × ${batch} = ${step}`,
    {},
    "set batch_size or grad_accum so that world × batch × accumulation = global batch",
  );
}
