// A group over real files and real decode workers, with slots in plain memory and clients that can be slow.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { crc32c } from "../../src/base/crc32c.ts";
import { slotOffsets as offsets } from "../../src/agent/layout.ts";
import { buildIndex } from "../../src/dataset/index-build.ts";
import type { DatasetIndex } from "../../src/dataset/types.ts";
import type { SlotTarget } from "../../src/feed/batcher.ts";
import { slotLayout } from "../../src/feed/columns.ts";
import { Decoders } from "../../src/feed/decoders.ts";
import { PATIENCE } from "../../src/feed/early.ts";
import type { Patience } from "../../src/feed/early.ts";
import { Budget } from "../../src/feed/budget.ts";
import { Group } from "../../src/feed/group.ts";
import type { Member, MemberRequest } from "../../src/feed/group.ts";
import { Ledger } from "../../src/feed/ledger.ts";
import { openOrder } from "../../src/feed/open-order.ts";
import { viewsOf } from "../../src/feed/order-view.ts";
import { Quarantine } from "../../src/feed/quarantine.ts";
import type { Source } from "../../src/feed/source.ts";
import { planOrder } from "../../src/order/job.ts";
import type { Job, PlannedOrder } from "../../src/order/job.ts";
import type { Order } from "../../src/order/order.ts";
import type { OrderOptions, OrderState } from "../../src/order/types.ts";
import { createPosixStorage } from "../../src/storage/posix.ts";
import type { Placement } from "../../src/placement/placement.ts";
import type { Storage } from "../../src/storage/types.ts";
import { concat, example } from "../kernels/examples.ts";

function frame(payload: Uint8Array): Uint8Array {
  const head = new Uint8Array(12);
  const view = new DataView(head.buffer);
  view.setBigUint64(0, BigInt(payload.length), true);
  view.setUint32(8, mask(crc32c(head.subarray(0, 8))), true);
  const tail = new Uint8Array(4);
  new DataView(tail.buffer).setUint32(0, mask(crc32c(payload)), true);
  return concat(head, payload, tail);
}

function mask(crc: number): number {
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}

/** Shards of these record counts; record n of the set has id first + n, ids [id, id + 1, …] and `bytes` of ballast. */
export function writeShards(counts: readonly number[], bytes: number, gzip: readonly number[] = [], first = 0): string {
  const folder = mkdtempSync(join(tmpdir(), "athanor-feed-"));
  const ballast = new Uint8Array(bytes).fill(7);
  let id = first;
  counts.forEach((count, shard) => {
    const frames: Uint8Array[] = [];
    for (let k = 0; k < count; k++, id++) {
      const ids = Array.from({ length: 1 + (id % 5) }, (_, i) => BigInt(id + i));
      frames.push(
        frame(
          example([
            ["id", { kind: "int64", values: [BigInt(id)] }],
            ["input_ids", { kind: "int64", values: ids }],
            ["text", { kind: "bytes", values: [ballast] }],
          ]),
        ),
      );
    }
    const all = concat(...frames);
    writeFileSync(
      join(folder, `s${String(shard).padStart(3, "0")}.tfrecord`),
      gzip.includes(shard) ? gzipSync(all) : all,
    );
  });
  return folder;
}

/** One delivered batch: ids by row, positions, validity, and the first step position. */
export interface Batch {
  position: number;
  ids: number[];
  positions: number[];
  valid: boolean[];
  lengths: number[];
  /** Rows in which another record stands in for a bad one. */
  replaced: number;
  /** Numbers of the sources. */
  sources: number[];
}

export class Client implements SlotTarget {
  readonly batches: Batch[] = [];
  /** Batches published and not consumed. */
  private full = 0;
  error: Error | undefined;
  member: Member | undefined;
  private readonly rig: Rig;
  private readonly slots: number;

  constructor(rig: Rig, slots: number) {
    this.rig = rig;
    this.slots = slots;
  }

  writable(): boolean {
    return this.full < this.slots;
  }

  drained(): boolean {
    return this.full === 0;
  }

  publish(bytes: Uint8Array): void {
    this.full++;
    this.batches.push(this.rig.parse(bytes));
  }

  get unread(): number {
    return this.full;
  }

  /** Gives a slot back. */
  release(): void {
    this.full--;
    this.rig.wake();
  }

  /** Waits for and returns batch n. */
  async batch(n: number, timeoutMs = 20_000): Promise<Batch> {
    const end = Date.now() + timeoutMs;
    for (;;) {
      if (this.error !== undefined) throw this.error;
      const found = this.batches[n];
      if (found !== undefined) {
        this.release();
        return found;
      }
      if (Date.now() > end)
        throw new Error(`batch ${n} did not come: ${this.member === undefined ? "" : this.rig.why(this.member)}`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
}

export interface RigSize {
  batch: number;
  world: number;
  memory?: number;
  budget?: Budget;
  patience?: Patience;
  largestBlock?: number;
  /** Bad records are replaced and written down in this folder. */
  ledger?: string;
  quota?: number;
  /** Where the data lies. @default files */
  storage?: Storage;
  /** Where the files lie. @default nobody knows */
  placement?: Pick<Placement, "home">;
  /** Called between the making of the index and the first read. */
  indexed?: (index: DatasetIndex) => void;
}

export class Rig {
  readonly plan: PlannedOrder;
  readonly order: Order;
  readonly source: Source;
  readonly group: Group;
  private readonly slot;
  private readonly shut: () => Promise<void>;

  private constructor(parts: {
    plan: PlannedOrder;
    order: Order;
    source: Source;
    group: Group;
    slot: ReturnType<typeof slotLayout>;
    close: () => Promise<void>;
  }) {
    this.plan = parts.plan;
    this.order = parts.order;
    this.source = parts.source;
    this.group = parts.group;
    this.slot = parts.slot;
    this.shut = parts.close;
  }

  static async open(folder: string, options: OrderOptions, size: RigSize): Promise<Rig> {
    return await Rig.mix([folder], { sizes: options, ...size });
  }

  /** Sources s0, s1, … of these folders. */
  static async mix(
    folders: readonly string[],
    size: RigSize & {
      sizes: OrderOptions;
      phases?: Job["phases"];
      ramp?: Job["ramp"];
      state?: OrderState;
    },
  ): Promise<Rig> {
    const storage = size.storage ?? createPosixStorage({ threads: 2 });
    const named = await Promise.all(
      folders.map(async (folder, i) => ({
        name: folders.length === 1 ? "data" : `s${i}`,
        index: await buildIndex(folder, { storage, write: false }),
      })),
    );
    for (const { index } of named) size.indexed?.(index);
    const { views, layout } = await viewsOf(
      named,
      { columns: undefined, maxLength: 4, padId: 0, strict: false },
      storage,
    );
    const { globalBatch, ...options } = size.sizes;
    const job: Job = {
      sources: named.map(({ name }, i) => ({ name, view: views[i]!.view })),
      phases: size.phases ?? [{ from: 0, weights: folders.map(() => 1) }],
      ramp: size.ramp ?? [{ from: 0, size: globalBatch }],
      options,
    };
    const plan = planOrder(job, size.state);
    const opened = await openOrder(plan, named, views, options, storage, layout, size.placement);
    const sources = opened.sources.map(
      (source) => source && { ...source, largestBlockBytes: size.largestBlock ?? 8 << 20 },
    );
    if (size.ledger !== undefined) {
      const ledger = await Ledger.open(size.ledger, size.quota ?? 1000);
      const options = { content: true, io: true, strict: false };
      for (const view of sources) if (view) view.quarantine = new Quarantine(view.source, layout, ledger, options);
    }
    const decoders = new Decoders(2);
    const slot = slotLayout(layout.columns, size.batch, offsets.identities, offsets.identityBytes);
    const group = new Group(
      { ...opened, sources, layout },
      {
        batch: size.batch,
        world: size.world,
        strict: false,
        checkCrc: true,
        patience: size.patience ?? PATIENCE,
        slot,
        offsets,
      },
      decoders,
      size.budget ?? new Budget(size.memory ?? 2 ** 31),
    );
    const close = async (): Promise<void> => {
      group.close();
      await decoders.close();
      await storage.close();
    };
    return new Rig({
      plan,
      order: opened.order,
      source: sources.find((source) => source !== undefined)!.source,
      group,
      slot,
      close,
    });
  }

  client(request: Partial<MemberRequest> & { rank: number }, slots = 3): Client {
    const client = new Client(this, slots);
    client.member = this.group.join({
      localRanks: [request.rank],
      stride: 1,
      offset: 0,
      position: this.plan.position,
      random: false,
      slots,
      target: client,
      failed: (error) => (client.error = error),
      ...request,
    });
    return client;
  }

  wake(): void {
    this.group.wake();
  }

  why(member: Member): string {
    return this.group.why(member.batcher);
  }

  parse(bytes: Uint8Array): Batch {
    const copy = new Uint8Array(8 + bytes.length);
    copy.set(bytes, 8);
    const view = new DataView(copy.buffer);
    const u64 = (at: number): number => Number(view.getBigUint64(at, true));
    const rows = view.getUint32(offsets.rows, true);
    const names = this.group.view.layout.columns.map((column) => column.name);
    const at = (name: string): number => this.slot.offsets[names.indexOf(name)] as number;
    const each = <T>(f: (i: number) => T): T[] => Array.from({ length: rows }, (_, i) => f(i));
    const identity = (i: number): number => offsets.identities + i * offsets.identityBytes;
    return {
      position: u64(offsets.position),
      ids: each((i) => view.getInt32(at("id") + 4 * i, true)),
      positions: each((i) => u64(identity(i))),
      valid: each((i) => (view.getUint32(identity(i) + 28, true) & 1) === 1),
      replaced: view.getUint32(offsets.replaced, true),
      sources: each((i) => view.getUint32(identity(i) + 28, true) >>> 1),
      lengths: each((i) => view.getUint32(at("attention_mask") + 4 * i, true)),
    };
  }

  close(): Promise<void> {
    return this.shut();
  }
}

export function remove(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
}
