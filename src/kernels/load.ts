/**
 * Loads the kernels over a memory: synchronous, so that a worker thread can do it before its first message.
 *
 * @example
 * const kernels = createKernels(64 << 20);                            // a private memory of its own
 * const here = loadKernels({ memory, tables, initTables: true });     // whoever made the memory
 * const there = loadKernels({ memory, tables });                      // every other thread
 */
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type ExampleBlock, type KernelFault, type Kernels, TABLE_BYTES } from "./kernels.ts";
import { createTwin } from "./twin.ts";

export interface LoadOptions {
  memory: WebAssembly.Memory;
  /** Address of TABLE_BYTES bytes for the tables, 16-byte aligned. */
  tables: number;
  /** Write the tables; exactly once a memory, before any other thread computes. @default false */
  initTables?: boolean;
  /** @default "wasm", or "twin" where the file or SIMD is missing */
  implementation?: "wasm" | "twin";
}

/** Below this address the kernels' own static data could lie (none today). */
const FIRST_ADDRESS = 1024;
const PAGE = 65536;

// null: looked for and not usable.
let compiled: WebAssembly.Module | null | undefined;

export function loadKernels(options: LoadOptions): Kernels {
  const { memory, tables } = options;
  if (tables % 16 !== 0 || tables < FIRST_ADDRESS || tables + TABLE_BYTES > memory.buffer.byteLength) {
    throw new RangeError(
      `tables must be a multiple of 16 from ${FIRST_ADDRESS} with ${TABLE_BYTES} bytes of memory behind it, got ${tables}`,
    );
  }
  const module = options.implementation === "twin" ? null : compile();
  if (module === null) {
    if (options.implementation === "wasm")
      throw new Error("kernels.wasm is missing or WebAssembly SIMD is: run `npm run build`");
    return createTwin(memory, tables, options.initTables === true);
  }
  return wrap(module, memory, tables, options.initTables === true);
}

/** Kernels over a memory of their own: tables, then at least `bytes` free bytes from `kernels.tables + TABLE_BYTES`. */
export function createKernels(bytes: number, implementation?: "wasm" | "twin"): Kernels {
  const pages = Math.ceil((FIRST_ADDRESS + TABLE_BYTES + bytes) / PAGE);
  // Shared because the module imports a shared memory; the maximum only reserves addresses.
  const memory = new WebAssembly.Memory({ initial: Math.max(pages, 4), maximum: 65536, shared: true });
  return loadKernels({
    memory,
    tables: FIRST_ADDRESS,
    initTables: true,
    ...(implementation === undefined ? {} : { implementation }),
  });
}

function compile(): WebAssembly.Module | null {
  if (compiled !== undefined) return compiled;
  compiled = null;
  // Beside the bundle (dist/agent.js), or above the compiled sources (dist/src/kernels/load.js).
  for (const path of ["./kernels.wasm", "../../kernels.wasm"]) {
    const file = fileURLToPath(new URL(path, import.meta.url));
    if (!existsSync(file)) continue;
    const bytes = readFileSync(file);
    if (WebAssembly.validate(bytes)) compiled = new WebAssembly.Module(bytes);
    break;
  }
  return compiled;
}

interface Exports {
  crc32c(ptr: number, length: number, seed: number): number;
  gather(rows: number, n: number, rowOffset: number, bytes: number, out: number): void;
  gatherHeads(rows: number, n: number, out: number): void;
  cutRows: { value: number };
  replacedRows: { value: number };
  scatter(rows: number, n: number, ptr: number, stride: number, rowOffset: number, bytes: number): void;
  scanFrames(ptr: number, length: number, max: number, offsets: number, lengths: number, crc: number): number;
  decodeExamples(
    raw: number,
    rawBytes: number,
    firstRecord: number,
    records: number,
    rows: number,
    plan: number,
    shardKey: bigint,
    checkCrc: number,
  ): void;
  statsExamples(ptr: number, offsets: number, lengths: number, records: number, table: number): number;
  unpackHybrid(
    ptr: number,
    end: number,
    width: number,
    out: number,
    count: number,
    words: number,
    size: number,
  ): number;
  unpackDelta(ptr: number, end: number, out: number, count: number, form: number): number;
  narrowInts(ptr: number, count: number, out: number): number;
  unshuffle(ptr: number, length: number, size: number, out: number): void;
  readDigits(ptr: number, end: number, out: number, max: number): number;
  initTables(): void;
  useTables(at: number): void;
  deltaEnd: { value: number };
  digitsEnd: { value: number };
  scanConsumed: { value: number };
  scanCrc: { value: number };
  scanNeeded: { value: number };
  decodedRows: { value: number };
  truncatedRows: { value: number };
  faultCode: { value: number };
  faultAt: { value: number };
  faultRecord: { value: number };
  faultRecordAt: { value: number };
  faultColumn: { value: number };
  faultFound: { value: bigint };
  faultExpected: { value: bigint };
}

function wrap(module: WebAssembly.Module, memory: WebAssembly.Memory, tables: number, init: boolean): Kernels {
  const x = new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as Exports;
  x.useTables(tables);
  if (init) x.initTables();
  // Addresses come back as i32; `>>> 0` makes those beyond 2 GiB positive again.
  const fault = (ptr: number): KernelFault | undefined =>
    x.faultCode.value === 0
      ? undefined
      : {
          code: x.faultCode.value,
          record: x.faultRecord.value >>> 0,
          recordOffset: (x.faultRecordAt.value - ptr) >>> 0,
          offset: (x.faultAt.value - ptr) >>> 0,
          found: x.faultFound.value,
          expected: x.faultExpected.value,
          column: x.faultColumn.value,
        };
  return {
    implementation: "wasm",
    memory,
    tables,
    crc32c: (ptr, length, seed = 0) => x.crc32c(ptr, length, seed) >>> 0,
    gather: (rows, n, rowOffset, bytes, out) => x.gather(rows, n, rowOffset, bytes, out),
    gatherHeads(rows, n, out) {
      x.gatherHeads(rows, n, out);
      return { cut: x.cutRows.value >>> 0, replaced: x.replacedRows.value >>> 0 };
    },
    scatter: (rows, n, ptr, stride, rowOffset, bytes) => x.scatter(rows, n, ptr, stride, rowOffset, bytes),
    scanFrames(ptr, length, max, offsets, lengths, crc) {
      const records = x.scanFrames(ptr, length, max, offsets, lengths, crc) >>> 0;
      return {
        records,
        consumed: x.scanConsumed.value >>> 0,
        needed: x.scanNeeded.value >>> 0,
        crc32c: x.scanCrc.value >>> 0,
        fault: fault(ptr),
      };
    },
    decodeExamples(block: ExampleBlock) {
      const { raw, rawBytes, firstRecord, records, rows, plan, shardKey, checkCrc } = block;
      x.decodeExamples(raw, rawBytes, firstRecord, records, rows, plan, shardKey, checkCrc ? 1 : 0);
      return { rows: x.decodedRows.value >>> 0, truncated: x.truncatedRows.value >>> 0, fault: fault(raw) };
    },
    statsExamples(ptr, offsets, lengths, records, table) {
      return { records: x.statsExamples(ptr, offsets, lengths, records, table) >>> 0, fault: fault(ptr) };
    },
    unpackHybrid: (ptr, length, width, out, count, words, size) =>
      x.unpackHybrid(ptr, ptr + length, width, out, count, words, size) !== 0,
    unpackDelta: (ptr, length, out, count, form) =>
      x.unpackDelta(ptr, ptr + length, out, count, form) === 0 ? -1 : (x.deltaEnd.value - ptr) >>> 0,
    narrowInts: (ptr, count, out) => x.narrowInts(ptr, count, out) !== 0,
    unshuffle: (ptr, length, size, out) => x.unshuffle(ptr, length, size, out),
    readDigits(ptr, length, out, max) {
      const count = x.readDigits(ptr, ptr + length, out, max) >>> 0;
      return { count, next: (x.digitsEnd.value - ptr) >>> 0 };
    },
  };
}
