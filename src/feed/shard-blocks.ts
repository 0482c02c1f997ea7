/**
 * Shard blocks: the blocks of one shard as they are stored, each once and whole, for work that is no feed (counting).
 *
 * @example
 * const blocks = new ShardBlocks(index, 0, ["text"], storage, new BlockMemory());
 * for (let block = 0, count = await blocks.open(); block < count; block++) {
 *   const { request, giveBack } = await blocks.read(block);
 *   giveBack();
 * }
 */
import type { DatasetIndex, StoredTable } from "../dataset/types.ts";
import { formatOf } from "../formats/registry.ts";
import type { RunningStream } from "../formats/running-stream.ts";
import { openStream } from "../formats/stream.ts";
import type { PosixStorage } from "../storage/posix.ts";
import { newClocks } from "../telemetry/clocks.ts";
import type { CountRequest } from "./count-thread.ts";
import { placeRuns } from "./placed-runs.ts";
import { Source } from "./source.ts";
import { restartsOf } from "./spans.ts";

const LEAST = 1 << 16;
/** A decoder may load so many bytes behind its own (never use). */
const SLACK = 32;

export class ShardBlocks {
  private readonly source: Source;
  private readonly shard: number;
  private readonly memory: BlockMemory;
  private stored: StoredTable | undefined;
  private stream: RunningStream | undefined;
  /** Blocks of a stream come out one behind the other. */
  private turn: Promise<unknown> = Promise.resolve();
  /** Bytes of the stream that came out. */
  private at = 0;

  constructor(
    index: DatasetIndex,
    shard: number,
    features: readonly string[],
    storage: PosixStorage,
    memory: BlockMemory,
  ) {
    this.memory = memory;
    const noExtents = { count: 0, shard: new Uint32Array(0), firstBlock: new Uint32Array(0) };
    const extents = { ...noExtents, blocks: new Uint32Array(0), sampleStart: new Float64Array(1) };
    this.source = new Source(index, extents, "count", storage, newClocks(), new Set(features));
    this.shard = shard;
  }

  /** Returns how many there are. */
  async open(): Promise<number> {
    const { table } = (this.stored = await this.source.index.shardTable(this.shard));
    await this.source.table(this.shard);
    return table.blocks;
  }

  close(): void {
    this.stream?.destroy();
  }

  async read(block: number): Promise<{ request: CountRequest; giveBack: () => void }> {
    const { table } = this.stored!;
    const { source, shard } = this;
    const [from, to] = [table.firstRecord[block]!, table.firstRecord[block + 1]!];
    const { runs, reads, rowsAt } = placeRuns(table, [{ shard, block, from, to }], source.wants(shard));
    const [{ span, places }] = runs as [(typeof runs)[number]];
    const buffer = this.memory.take(rowsAt + SLACK);
    if (source.readsItself) await source.check(shard);
    if (table.stream) {
      const [{ offset, length }] = span.pieces as [(typeof span.pieces)[number]];
      await this.inflate(offset, new Uint8Array(buffer, 0, length));
    } else {
      await Promise.all(
        reads.map(({ file, offset, length, place }) => source.read(shard, file, offset, length, buffer, place, false)),
      );
    }
    const segments = span.pieces.map((piece, i) => ({
      ...piece,
      bytes: new Uint8Array(buffer, table.stream ? 0 : places[i]!, piece.length),
    }));
    const request: CountRequest = {
      format: formatOf(source.index.format).name,
      file: source.path(shard),
      block,
      firstRecord: from,
      records: to - from,
      segments,
      restarts: restartsOf(table, block, span),
      origin: span.origin,
      meta: source.meta(shard),
      checkCrc: true,
    };
    return { request, giveBack: () => this.memory.giveBack(buffer) };
  }

  private inflate(offset: number, target: Uint8Array): Promise<void> {
    const turn = this.turn.then(async () => {
      this.stream ??= this.start();
      await this.stream.skip(offset - this.at);
      await this.stream.readInto(target);
      this.at = offset + target.length;
    });
    this.turn = turn.catch(() => undefined);
    return turn;
  }

  private start(): RunningStream {
    const { encoding, pull } = this.source.openStream(this.shard);
    const stream = openStream(encoding, this.source.path(this.shard), () => {
      pull().then(
        ({ bytes, last }) => stream.push(bytes, last),
        (error: Error) => stream.abort(error),
      );
    });
    return stream;
  }
}

/** Memory for blocks, used again: the collector does not see the weight of shared memory. */
export class BlockMemory {
  /** By size, a power of two. */
  private readonly idle = new Map<number, SharedArrayBuffer[]>();

  take(bytes: number): SharedArrayBuffer {
    const size = Math.max(LEAST, 2 ** Math.ceil(Math.log2(bytes)));
    return this.idle.get(size)?.pop() ?? new SharedArrayBuffer(size);
  }

  giveBack(buffer: SharedArrayBuffer): void {
    const same = this.idle.get(buffer.byteLength);
    if (same === undefined) this.idle.set(buffer.byteLength, [buffer]);
    else same.push(buffer);
  }
}
