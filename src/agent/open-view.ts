/**
 * Opening a view: from a session's hello to an index, an order and a layout. The index is made here if it is missing
 * and this node holds global rank 0; other nodes wait for it. Sets above 100 GB are refused: their index is made before.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { formatSize } from "../base/units.ts";
import { buildIndex } from "../dataset/index-build.ts";
import { IndexReadOnly } from "../dataset/errors.ts";
import { uncounted } from "../dataset/counts.ts";
import { openIndex } from "../dataset/index-read.ts";
import { writeView } from "../dataset/view-write.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import { countTokens } from "../feed/count.ts";
import type { Counted } from "../feed/counted.ts";
import type { GroupView } from "../feed/group.ts";
import { ownColumns } from "../feed/delivered.ts";
import { Ledger } from "../feed/ledger.ts";
import { openOrder } from "../feed/open-order.ts";
import { SOURCE_NAME, viewsOf } from "../feed/order-view.ts";
import type { NamedIndex, SourceViews, ViewMaker } from "../feed/order-view.ts";
import { Quarantine } from "../feed/quarantine.ts";
import type { QuarantineOptions } from "../feed/quarantine.ts";
import type { TextRequest } from "../feed/text.ts";
import { planOrder } from "../order/job.ts";
import type { Job, Phase, PlannedOrder } from "../order/job.ts";
import { parseState } from "../order/state.ts";
import { Unsupported } from "../formats/errors.ts";
import type { Placement } from "../placement/placement.ts";
import type { PosixStorage } from "../storage/posix.ts";
import { Attempts, Unwanted, type Waiter } from "./attempts.ts";
import { BatchArithmetic, IndexTooLarge, ProtocolMessage } from "./errors.ts";
import type { Hello } from "./messages.ts";
import { Tokenizers } from "./tokenizers.ts";

const MAX_BUILD_BYTES = 100e9;
const WAIT_MS = 1000;

export interface OpenedView extends GroupView {
  plan: PlannedOrder;
  /** Position that the state names, or the order's start. */
  position: number;
}

export class ViewOpener {
  private readonly storage: PosixStorage;
  private readonly tokenizers: Tokenizers;
  private readonly placement: Placement;
  /** Workers that count tokens. */
  private readonly threads: number;
  /** Sets being opened: all sessions of a node share one attempt, and one index build. */
  private readonly indexes = new Attempts<DatasetIndex>();
  private readonly counts = new Attempts<void>();

  constructor(storage: PosixStorage, placement: Placement, threads: number) {
    this.storage = storage;
    this.placement = placement;
    this.threads = threads;
    this.tokenizers = new Tokenizers(storage);
  }

  async open(hello: Hello, waiter: Waiter): Promise<OpenedView> {
    const { view: request } = hello;
    const asked = sourcesOf(hello);
    // Not what others read: an evaluation now and then would have all shards of the training opened anew.
    this.storage.forget(asked.map(({ path }) => path));
    const { quarantine } = hello;
    const ledger = quarantine === null ? undefined : await Ledger.open(quarantine.ledger_dir, quarantine.quota);
    const named = await Promise.all(
      asked.map(async (source) => ({ name: source.name, index: await this.index(source, keepsBad(hello), waiter) })),
    );
    const text = request.tokenizer === null ? undefined : await this.text(request.tokenizer);
    const counts = request.sample_rule === "split" || request.sample_rule === "pack";
    if (text !== undefined && hello.mix?.by === "tokens" && !counts) {
      throw new Unsupported(
        "weights by tokens need counts of tokens, and the index of text has none",
        {},
        'weigh the sources of the mixture by samples, or use sample_rule="split" or "pack", which count tokens',
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
        own: ownColumns(hello.order.last),
        mostBad: keepsBad(hello) ? (hello.quarantine?.quota ?? 0) : 0,
        text,
      },
      this.storage,
      state?.sources,
      this.maker(asked, named, keepsBad(hello), waiter),
    );
    const job = jobOf(hello, named, views);
    const plan = planOrder(job, state, hello.override);
    checkSteps(hello, plan);
    const opened = await openOrder(plan, named, views, job.options, this.storage, layout, this.placement);
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
    const tokenizer = await this.tokenizers.open(asked.path);
    return {
      tokenizer,
      chat: await this.tokenizers.chat(asked.chat ?? {}, tokenizer),
      column: asked.text_column ?? undefined,
      truncationSide: asked.truncation_side,
      around: asked.special_tokens,
      parseSpecial: asked.parse_special,
    };
  }

  private index(source: AskedSource, keepBad: boolean, waiter: Waiter): Promise<DatasetIndex> {
    const key = JSON.stringify([source.path, source.index_dir, keepBad]);
    return this.indexes.join(key, waiter, (all) => this.openOrBuild(source, keepBad, all));
  }

  /** Counts the tokens of sets, as `index` builds indexes: on the node of rank 0, while the others wait. */
  private maker(
    asked: readonly AskedSource[],
    named: readonly NamedIndex[],
    keepBad: boolean,
    waiter: Waiter,
  ): ViewMaker {
    const sourceOf = (index: DatasetIndex): AskedSource =>
      asked[named.findIndex((source) => source.index.folder === index.folder)]!;
    return {
      count: (index, counted) =>
        this.counts.join(JSON.stringify([index.folder, index.fingerprint, counted.hash, keepBad]), waiter, (all) =>
          this.countOrWait(index, counted, sourceOf(index), keepBad, all),
        ),
      keep: async (index, name, parts) => {
        if (!waiter.builds()) return;
        // Where nobody may write the rows are made again by each job; their counts are there.
        await writeView(index, name, parts, sourceOf(index).path).catch((error: unknown) => {
          if (!(error instanceof IndexReadOnly)) throw error;
        });
      },
    };
  }

  private async countOrWait(
    index: DatasetIndex,
    counted: Counted,
    { path: source, index_dir: indexDir }: AskedSource,
    keepBad: boolean,
    { progress, alive, builds }: Waiter,
  ): Promise<void> {
    for (;;) {
      const missing = await uncounted(index, counted.hash, this.storage);
      if (missing.length === 0) return;
      if (builds()) {
        const bytes = missing.reduce((sum, shard) => sum + index.shards[shard]!.size, 0);
        if (bytes > MAX_BUILD_BYTES) refuseCount(source, indexDir, bytes);
        await countTokens(index, counted, {
          storage: this.storage,
          source,
          threads: this.threads,
          onBad: keepBad ? () => undefined : undefined,
          progress: (done, total) => {
            if (!alive()) throw new Unwanted("nobody waits for these counts any more");
            progress("count tokens", done, total);
          },
        });
        return;
      }
      if (!alive()) throw new Unwanted("nobody waits for these counts any more");
      progress("wait for counts of tokens", 0, 0);
      await sleep(WAIT_MS);
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

function refuseCount(source: string, indexDir: string | null, bytes: number): never {
  throw new IndexTooLarge(
    `the tokens of ${formatSize(bytes)} are not counted, too many to read at the start of a job`,
    { file: source },
    `run \`athanor index ${source} --view …${indexDir === null ? "" : ` --index-dir ${indexDir}`}\` once before, with the options of the loader`,
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
