/**
 * Opening a view: from a session's hello to an index, an order and a layout. The index is made here if it is missing
 * and this node holds global rank 0; other nodes wait for it. Sets above 100 GB are refused: their index is made before.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { formatSize } from "../base/units.ts";
import { buildIndex } from "../dataset/index-build.ts";
import { openIndex } from "../dataset/index-read.ts";
import { extents } from "../dataset/extents.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import { BLOCK_BYTES } from "../formats/types.ts";
import type { GroupView } from "../feed/group.ts";
import { SOURCE_NAME, viewOf } from "../feed/order-view.ts";
import { Source } from "../feed/source.ts";
import { Order } from "../order/order.ts";
import { resolveOrder, RUN_BLOCKS } from "../order/resolve.ts";
import { checkState, parseState } from "../order/state.ts";
import type { OrderOptions, OrderView } from "../order/types.ts";
import type { PosixStorage } from "../storage/posix.ts";
import { newClocks } from "../telemetry/clocks.ts";
import { IndexTooLarge, ProtocolMessage } from "./errors.ts";
import type { Hello } from "./messages.ts";

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
  /** Position that the state names, or the order's start. */
  position: number;
}

export class ViewOpener {
  private readonly storage: PosixStorage;
  /** Sets being opened: all sessions of a node share one attempt, and one index build. */
  private readonly indexes = new Map<string, Promise<DatasetIndex>>();
  private readonly listeners = new Map<string, Set<Waiter>>();

  constructor(storage: PosixStorage) {
    this.storage = storage;
  }

  async open(hello: Hello, waiter: Waiter): Promise<OpenedView> {
    const { view: request } = hello;
    this.storage.forget();
    const index = await this.index(hello, waiter);
    const { view, layout } = await viewOf(index, {
      columns: request.columns ?? undefined,
      maxLength: request.max_length,
      padId: request.pad_id,
      strict: request.strict,
    });
    const { resolved, position } = resolve(hello, view);
    const table = await extents(index, resolved.extentBlocks);
    const largestBlockBytes = await largestBlock(index, resolved.extentBlocks);
    const clocks = newClocks();
    const source = new Source(index, table, SOURCE_NAME, this.storage, clocks);
    return { order: new Order(view, table, resolved), view, source, largestBlockBytes, layout, clocks, position };
  }

  private async index(hello: Hello, waiter: Waiter): Promise<DatasetIndex> {
    const { source, index_dir: indexDir } = hello.view;
    const key = JSON.stringify([source, indexDir]);
    const listeners = this.listeners.get(key) ?? new Set<Waiter>();
    this.listeners.set(key, listeners);
    listeners.add(waiter);
    let opening = this.indexes.get(key);
    if (opening === undefined) {
      opening = this.openOrBuild(hello, {
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
    } finally {
      listeners.delete(waiter);
    }
  }

  private async openOrBuild(hello: Hello, { progress, alive, builds }: Waiter): Promise<DatasetIndex> {
    const { source, index_dir: indexDir } = hello.view;
    const place = { storage: this.storage, ...(indexDir === null ? {} : { indexDir }) };
    for (;;) {
      const index = await openIndex(source, place);
      if (index !== undefined) return index;
      // A rank that may build it can come behind one that may not.
      if (builds()) {
        return await buildIndex(source, {
          ...place,
          progress: (done, total) => {
            if (!alive()) throw new ProtocolMessage("nobody waits for this index any more");
            if (total > MAX_BUILD_BYTES) refuseBuild(source, indexDir, total);
            progress("index", done, total);
          },
        });
      }
      if (!alive()) throw new ProtocolMessage("nobody waits for this index any more");
      progress("wait for index", 0, 0);
      await sleep(WAIT_MS);
    }
  }
}

function refuseBuild(source: string, indexDir: string | null, bytes: number): never {
  throw new IndexTooLarge(
    `the data has no index, and ${formatSize(bytes)} are too many to read at the start of a job`,
    { file: source },
    `run \`athanor index ${source}${indexDir === null ? "" : ` --index-dir ${indexDir}`}\` once before`,
  );
}

function resolve(hello: Hello, view: OrderView): { resolved: ReturnType<typeof resolveOrder>; position: number } {
  const { order } = hello;
  const options: OrderOptions = {
    seed: BigInt(order.seed),
    shuffle: order.shuffle,
    unit: order.unit,
    last: order.last,
    globalBatch: order.global_batch,
  };
  if (order.shuffle_memory !== null) options.shuffleMemory = order.shuffle_memory;
  if (order.lanes !== null) options.lanes = order.lanes;
  if (order.window !== null) options.window = order.window;
  if (hello.state === null || hello.state === undefined) {
    const resolved = resolveOrder(view, options);
    return { resolved, position: resolved.from };
  }
  return checkState(parseState(hello.state), view, options, hello.override);
}

/** Bytes of the largest block. Extents of whole runs need no block tables: there it is not known, and taken as usual. */
async function largestBlock(index: DatasetIndex, extentBlocks: number): Promise<number> {
  let most = BLOCK_BYTES;
  if (extentBlocks === 0 || extentBlocks >= RUN_BLOCKS) return most;
  for (let shard = 0; shard < index.shards.length; shard++) {
    for (const bytes of (await index.blockTable(shard)).segmentLength) most = Math.max(most, bytes);
  }
  return most;
}
