/**
 * Early rows: rows of single positions, fetched through restart offsets while windows are still filling, so that the
 * first batch after a start or a resume waits for no window (design §4.5). Also all rows of random access.
 */
import type { Intake, RowSink } from "./intake.ts";
import type { GroupMemory } from "./memory.ts";
import type { RecordRun, Source } from "./source.ts";
import { RESTART_EVERY } from "../formats/types.ts";
import type { BlockTable } from "../formats/types.ts";
import { blockOf, isReadWhole } from "./spans.ts";
import { ROW_COMING } from "./supply.ts";

/** What a session that waits prefers to small reads: a fill of which this little is left. */
export interface Patience {
  rows: number;
  bytes: number;
}

/** About a third of a second of decoding by one worker, or of reading at 400 MB/s. */
export const PATIENCE: Patience = { rows: 100_000, bytes: 128 * 1024 * 1024 };

interface Wanted {
  position: number;
  shard: number;
  record: number;
}

export class EarlyRows {
  /** Position → row; `ROW_COMING` while it is fetched. */
  private readonly rows = new Map<number, number>();
  private readonly queue: Wanted[][] = [];
  private closed = false;
  private running = 0;
  /** Rows of the pool in use or promised to fetches; never more than `limit`, which is this part's share of the pool. */
  private inUse = 0;
  /** Fetched for nothing: another row of the position was used meanwhile. */
  private readonly dropped = new Set<number>();
  private readonly limit: number;
  private readonly source: Source;
  private readonly memory: GroupMemory;
  private readonly intake: Intake;
  private readonly sampleAt: (position: number) => number;
  private readonly changed: () => void;
  private readonly failed: (error: Error) => void;
  private readonly patience: Patience;

  constructor(parts: {
    source: Source;
    patience: Patience;
    limit: number;
    memory: GroupMemory;
    intake: Intake;
    sampleAt: (position: number) => number;
    changed: () => void;
    failed: (error: Error) => void;
  }) {
    this.source = parts.source;
    this.patience = parts.patience;
    this.limit = parts.limit;
    this.memory = parts.memory;
    this.intake = parts.intake;
    this.sampleAt = parts.sampleAt;
    this.changed = parts.changed;
    this.failed = parts.failed;
  }

  get size(): number {
    return this.rows.size;
  }

  has(position: number): boolean {
    return this.rows.has(position);
  }

  /** Row address, `ROW_COMING` or undefined (never asked for). */
  get(position: number): number | undefined {
    return this.rows.get(position);
  }

  take(position: number): void {
    const row = this.rows.get(position);
    if (row === undefined) return;
    if (row === ROW_COMING) {
      this.dropped.add(position);
      return;
    }
    this.rows.delete(position);
    this.memory.rows.release(row);
    this.inUse--;
    this.pump();
  }

  /** Rows that nobody wants any more (a consumer left or moved). */
  sweep(wanted: (position: number) => boolean): void {
    for (const [position, row] of this.rows) {
      if (row !== ROW_COMING && !wanted(position)) this.take(position);
    }
  }

  /**
   * Are single rows worth their reads while `rows` rows are on their way anyway? Each costs a read and a decoder call
   * over up to 64 records, some 0.2 ms; a worker decodes 300,000 rows a second, so what is left of a fill below this
   * is there sooner than one batch of single rows.
   */
  isWorth(rows: number): boolean {
    const { records, bytes } = this.source.index.totals;
    return rows > this.patience.rows || rows * (bytes / Math.max(records, 1)) > this.patience.bytes;
  }

  /** Fetches positions not asked for yet, records of one span or of one block without restarts together. */
  fetch(positions: Iterable<number>): void {
    const byShard = new Map<number, Wanted[]>();
    for (const position of positions) {
      if (this.rows.has(position)) continue;
      this.rows.set(position, ROW_COMING);
      const wanted = { position, ...this.source.placeOf(this.sampleAt(position)) };
      const others = byShard.get(wanted.shard);
      if (others === undefined) byShard.set(wanted.shard, [wanted]);
      else others.push(wanted);
    }
    for (const [shard, wanted] of [...byShard].sort(([a], [b]) => a - b)) {
      wanted.sort((a, b) => a.record - b.record);
      const table = this.source.tableNow(shard);
      if (table === undefined) this.intake.during(this.fetchLater(shard, wanted)).catch(this.failed);
      else this.enqueue(table, wanted);
    }
    this.pump();
  }

  private async fetchLater(shard: number, wanted: Wanted[]): Promise<void> {
    this.enqueue(await this.source.table(shard), wanted);
    this.pump();
  }

  /** `wanted`: of one shard, in order of records. */
  private enqueue(table: BlockTable, wanted: readonly Wanted[]): void {
    let group: Wanted[] = [];
    for (const next of wanted) {
      const last = group[group.length - 1];
      if (last !== undefined && !areTogether(table, last.record, next.record)) {
        this.queue.push(group);
        group = [];
      }
      group.push(next);
    }
    this.queue.push(group);
  }

  close(): void {
    this.closed = true;
    this.queue.length = 0;
  }

  /** Up to 16 fetches at a time: enough for a storage that takes milliseconds, few enough to leave it usable. */
  private pump(): void {
    while (!this.closed && this.running < 16 && this.queue.length > 0) {
      const group = this.queue[0] as Wanted[];
      if (this.inUse + group.length > this.limit) return;
      this.queue.shift();
      this.running++;
      this.inUse += group.length;
      this.intake.during(this.fetchGroup(group)).then(
        () => this.after(),
        (error: Error) => {
          this.running--;
          this.failed(error);
        },
      );
    }
  }

  private after(): void {
    this.running--;
    this.pump();
    this.changed();
  }

  private async fetchGroup(group: Wanted[]): Promise<void> {
    const { shard, record: from } = group[0] as Wanted;
    const to = (group[group.length - 1] as Wanted).record + 1;
    const table = await this.source.table(shard);
    if (this.closed) return;
    const positionOf = new Map<number, number[]>();
    for (const { position, record } of group) positionOf.set(record, [...(positionOf.get(record) ?? []), position]);
    const sink: RowSink = {
      place: (_run: RecordRun, record: number) => (positionOf.has(record) ? this.newRow() : 0),
      done: (_run: RecordRun, record: number, row: number) => this.arrived(positionOf.get(record) as number[], row),
    };
    const stream = table.stream ? this.intake.openStream(shard) : undefined;
    try {
      for (const run of this.source.runs(table, shard, from, to)) {
        let load = this.intake.load(table, [run], true, sink, stream);
        while (load === undefined && !this.closed) {
          await this.memory.raw.room();
          load = this.intake.load(table, [run], true, sink, stream);
        }
        await load;
        if (this.closed) return;
      }
    } finally {
      stream?.close();
    }
  }

  private newRow(): number {
    const row = this.memory.rows.alloc();
    if (row === 0) throw new Error("row pool is empty although single rows have a share of it");
    return row;
  }

  /** One row a position: a record asked for twice in one batch (random access) is copied. */
  private arrived(positions: number[], row: number): void {
    const { bytes, rows } = this.memory;
    positions.forEach((position, i) => {
      let own = row;
      if (i > 0) {
        own = this.newRow();
        bytes.copyWithin(own, row, row + rows.rowBytes);
      }
      this.rows.set(position, own);
      if (this.dropped.delete(position)) this.take(position);
    });
  }
}

/** Are two records of a shard read together? Near ones are; and a block without restarts is read whole for either. */
function areTogether(table: BlockTable, record: number, next: number): boolean {
  if (next - record < RESTART_EVERY) return true;
  const block = blockOf(table, record);
  return isReadWhole(table, block) && next < (table.firstRecord[block + 1] as number);
}
