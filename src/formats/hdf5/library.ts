/**
 * Library: the HDF5 C library in WebAssembly (h5wasm 0.10.3), as its raw bindings: its high-level layer drops the status of a
 * read and gives uninitialised memory for one that failed. What is around it here:
 * - it compiles once a thread; an instance that trapped or failed to open a file, or whose memory has grown large (WebAssembly never gives
 *   memory back), is left behind, and the next caller gets a fresh one (16 ms);
 * - it opens only the files that it was told of, never one that a data file names, and no plugin but ours;
 * - what it prints goes into `Hdf5Failure.cause`, not to the user's terminal;
 * - an I/O error of the file system is ATH_STORAGE_IO, never a fault of the data.
 *
 * Contract: `call` runs synchronously and throws Hdf5Failure, StorageIo, or what `work` throws.
 *
 * @example
 * const library = await liveLibrary();
 * const names = library.call(path, (h5) => h5.get_names(id, "/", false));
 */
import { closeSync, existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { inflateSync } from "node:zlib";
import { AthanorError } from "../../base/errors.ts";
import { StorageIo } from "../../storage/errors.ts";
import type { LibraryRead } from "./direct.ts";
import type { Dtype } from "./dtype.ts";
import { guardPlugins, type DynamicLinking } from "./plugins.ts";

/** The part of h5wasm's bindings that we use. Ids are 64 bits; −1: it failed. */
export interface H5 {
  readonly HEAPU8: Uint8Array;
  _malloc(bytes: number): number;
  _free(at: number): void;
  open(path: string, mode: number, trackOrder: boolean, low: number, high: number): bigint;
  close_file(file: bigint): number;
  get_names(file: bigint, group: string, recursive: boolean): string[];
  /** 0 a group, 1 a dataset, 2 a type, 3 a broken link, 4 an external link, −1 nothing. */
  get_type(file: bigint, path: string): number;
  get_external_link(file: bigint, path: string): { filename?: string; obj_path?: string };
  get_dataset_metadata(file: bigint, path: string): DatasetInfo;
  get_dataset_filters(file: bigint, path: string): { id: number; name: string }[];
  get_dataset_data(
    file: bigint,
    path: string,
    count: readonly bigint[],
    offset: readonly bigint[],
    stride: readonly bigint[],
    at: bigint,
  ): number;
  reclaim_vlen_memory_count(
    file: bigint,
    path: string,
    attribute: string,
    at: bigint,
    count: readonly bigint[],
  ): number;
  /** 8 bytes: the address of the object's header, little-endian. */
  create_object_reference(file: bigint, path: string): ArrayLike<number>;
  get_plugin_search_paths(): string[];
  insert_plugin_search_path(path: string, index: number): number;
  remove_plugin_search_path(index: number): number;
}

export interface DatasetInfo extends Dtype {
  /** null: a null dataspace. */
  shape: number[] | null;
  chunks: number[] | null;
  virtual_sources?: { file_name: string; dset_name: string }[];
}

/** The library refused: `cause` is the innermost line of its error stack. */
export class Hdf5Failure extends Error {
  /** All that it printed. */
  readonly printed: string;
  /** Last bytes of a data file that it read before. */
  readonly lastRead: LastRead | undefined;
  /** It trapped, or took all memory: the instance is gone. */
  readonly crashed: boolean;

  constructor(reason: string, printed: string, lastRead: LastRead | undefined, crashed: boolean) {
    super(reason);
    this.printed = printed;
    this.lastRead = lastRead;
    this.crashed = crashed;
  }
}

interface LastRead {
  path: string;
  offset: number;
  length: number;
}

interface Stream {
  fd: number;
  nfd?: number;
  path: string;
  position: number;
}
interface Emscripten extends H5 {
  FS: {
    ErrnoError: new (errno: number) => Error & { errno: number };
    open(path: string, flags: number, mode?: number): Stream;
    close(stream: Stream): void;
    read(stream: Stream, buffer: Uint8Array, offset: number, length: number, position?: number): number;
    write(stream: Stream, buffer: Uint8Array, offset: number, length: number, position?: number): number;
  };
}
type Imports = {
  env: DynamicLinking & {
    emscripten_resize_heap: (size: number) => number | boolean;
    malloc?: (bytes: number) => number;
    uncompress?: (to: number, toLength: number, from: number, length: number) => number;
  };
};
interface Sink {
  maxHeap: number;
  print: (text: string) => void;
  malloc: (of: Emscripten, bytes: number) => number;
  refused: (why: string) => void;
}
type Factory = (options: {
  print(line: string): void;
  printErr(line: string): void;
  instantiateWasm(imports: Imports, done: (instance: WebAssembly.Instance, module: WebAssembly.Module) => void): object;
}) => Promise<Emscripten>;

/** Memory for all but chunks and our own buffer. What a damaged file asks for beyond it is refused. */
const BASE_HEAP = 96 * 1024 * 1024;
/** A chunk as stored, unshuffled and decompressed, and a margin. */
const CHUNK_COPIES = 4;
/** An instance larger than this is not used again. */
const KEPT_HEAP = 96 * 1024 * 1024;
/** Reads of one call: far more than any block needs, and an end to circles in damaged metadata. */
const MAX_READS = 1_000_000;
const MAX_RECORDED = 64 * 1024 * 1024;
const MAX_PRINTED = 64 * 1024;
const ENOENT = 44;
const EIO = 29;
const Z_DATA_ERROR = -3;
const Z_BUF_ERROR = -5;

/** Told of each call: it may go in circles over damaged metadata, which only another thread can end (`pulse.ts`). */
export interface Pulse {
  begin(bytes: number): void;
  end(): void;
}

let pulse: Pulse | undefined;

export function setPulse(of: Pulse): void {
  pulse = of;
}

export class Library {
  readonly h5: Emscripten;
  private readonly allowed = new Set<string>();
  private readonly folder: string;
  private readonly sink: Sink;
  private readonly inserted = new Set<number>();
  private readonly descriptors = new Set<number>();
  private printed = "";
  /** Why a filter was not called at all. */
  private refusal: string | undefined;
  private reads = 0;
  private lastRead: LastRead | undefined;
  private failedRead: { path: string; offset: number; error: unknown } | undefined;
  private dead = false;
  private chunkBytes = 0;
  private canary = 0;
  private recorded: (LibraryRead & { path: string })[] | undefined;
  private recordedBytes = 0;

  private constructor(h5: Emscripten, folder: string, sink: Sink) {
    this.h5 = h5;
    this.folder = folder;
    this.sink = sink;
    sink.print = (text) => {
      if (this.printed.length < MAX_PRINTED) this.printed += text;
    };
    sink.refused = (why) => {
      this.refusal = why;
    };
    sink.malloc = (of, bytes) => {
      const size = Math.max(bytes, this.chunkBytes);
      const at = of["_malloc"](size);
      if (at !== 0) of.HEAPU8.fill(this.canary, at, at + size);
      return at;
    };
    this.guard();
    for (const _ of h5.get_plugin_search_paths()) h5.remove_plugin_search_path(0);
  }

  static async make(): Promise<Library> {
    const { factory, module, folder } = await loadOnce();
    const sink: Sink = {
      maxHeap: BASE_HEAP,
      print: () => undefined,
      malloc: (of, bytes) => of["_malloc"](bytes),
      refused: () => undefined,
    };
    let made: Emscripten | undefined;
    const h5Heap = (): Uint8Array => made!.HEAPU8;
    const h5 = await factory({
      print: (line) => sink.print(`${line}\n`),
      printErr: (line) => sink.print(`${line}\n`),
      instantiateWasm(imports, done) {
        const resize = imports.env.emscripten_resize_heap;
        imports.env.emscripten_resize_heap = (size) => (size >>> 0 > sink.maxHeap ? false : resize(size));
        // A plugin takes the size of a chunk from its damaged bytes, and HDF5 reads as much as the chunk should have: with a
        // margin of known bytes that is seen (`rows.ts`) and no memory of others.
        imports.env.malloc = (bytes) => sink.malloc(made!, bytes);
        // The blosc plugins were linked without zlib.
        imports.env.uncompress = (to, toLength, from, length) => uncompress(h5Heap(), to, toLength, from, length);
        let table: WebAssembly.Table | undefined;
        guardPlugins(
          imports.env,
          () => table!,
          h5Heap,
          (why) => sink.refused(why),
        );
        const instance = new WebAssembly.Instance(module, imports);
        table = instance.exports["__indirect_function_table"] as WebAssembly.Table;
        done(instance, module);
        return {};
      },
    });
    made = h5;
    return new Library(h5, folder, sink);
  }

  /** May it be called again? */
  get usable(): boolean {
    return !this.dead && this.h5.HEAPU8.byteLength <= KEPT_HEAP;
  }

  /**
   * No call from now on. For an opening that failed too: h5wasm leaves objects open on its error paths, and HDF5 would take a
   * file that is written anew in place for the one it still has open.
   */
  retire(): void {
    this.dead = true;
    for (const fd of this.descriptors) closeSync(fd);
    this.descriptors.clear();
  }

  /** Files that may be opened from now on. */
  allow(path: string): void {
    this.allowed.add(path);
  }

  /** Makes a filter usable; false: there is no plugin for it. */
  addPlugin(id: number): boolean {
    if (this.inserted.has(id)) return true;
    const folder = `${this.folder}/${id}`;
    if (!existsSync(folder)) return false;
    this.h5.insert_plugin_search_path(folder, 0);
    this.inserted.add(id);
    return true;
  }

  /** Frees memory of the library, unless that is gone. */
  release(at: number): void {
    if (!this.dead) this.h5["_free"](at);
  }

  /** `bytes`: how much it may have to decompress; `chunkBytes`: at once, into memory full of `canary`. */
  call<Result>(work: (h5: H5) => Result, { bytes = 0, chunkBytes = 0, canary = 0 } = {}): Result {
    pulse?.begin(bytes);
    this.chunkBytes = chunkBytes;
    this.canary = canary;
    this.sink.maxHeap = BASE_HEAP + bytes + CHUNK_COPIES * chunkBytes;
    this.printed = "";
    this.refusal = undefined;
    this.reads = 0;
    this.lastRead = undefined;
    this.failedRead = undefined;
    const { exitCode } = process;
    try {
      return work(this.h5);
    } catch (error) {
      this.refuseIo();
      if (error instanceof AthanorError || error instanceof Hdf5Failure) throw error;
      // h5wasm itself throws a plain Error at a name that is not there; all else left the C code half-way.
      this.dead ||= !(error instanceof Error) || error.constructor !== Error;
      throw this.failure(error instanceof Error ? error.message : String(error));
    } finally {
      pulse?.end();
      // The C library's exit() would set it.
      process.exitCode = exitCode;
    }
  }

  /** The failure of a call that gave an error status. */
  failure(fallback: string): Hdf5Failure {
    this.refuseIo();
    // Innermost last: "  #012: …/H5Dchunk.c line 4000 in H5D__chunk_lock(): data pipeline read failed".
    const lines = [...this.printed.matchAll(/^ *#\d+: .*? in (\w+)\(\): (.*)$/gm)].map(([, , text]) => text!);
    const reason = this.refusal ?? lines.at(-1) ?? fallback.split("\n")[0]!;
    return new Hdf5Failure(reason.slice(0, 300), this.printed, this.lastRead, !this.usable);
  }

  /** What `work` reads of a file, as far as MAX_RECORDED goes. */
  recording<Result>(path: string, work: () => Result): { result: Result; reads: LibraryRead[] } {
    this.recorded = [];
    this.recordedBytes = 0;
    try {
      const result = work();
      return { result, reads: this.recorded.filter((read) => read.path === path) };
    } finally {
      this.recorded = undefined;
    }
  }

  private refuseIo(): void {
    const { failedRead } = this;
    if (failedRead === undefined) return;
    const { path, offset, error } = failedRead;
    const code = (error as NodeJS.ErrnoException | undefined)?.message ?? "read failed";
    throw new StorageIo(
      `reading failed: ${code}`,
      { file: path, byteOffset: offset },
      "check the mount and the kernel log of the node",
      error,
    );
  }

  private record(
    path: string,
    offset: number,
    { buffer, byteOffset }: ArrayBufferView,
    at: number,
    length: number,
  ): void {
    if (this.recorded === undefined || length === 0 || this.recordedBytes + length > MAX_RECORDED) return;
    this.recordedBytes += length;
    this.recorded.push({ path, offset, bytes: new Uint8Array(buffer, byteOffset + at, length).slice() });
  }

  private guard(): void {
    const { FS } = this.h5;
    const { open, close, read, write } = FS;
    FS.open = (path, flags, mode) => {
      if (!this.allowed.has(path) && !path.startsWith(`${this.folder}/`)) throw new FS.ErrnoError(ENOENT);
      const stream = open(path, flags, mode);
      if (stream.nfd !== undefined) this.descriptors.add(stream.nfd);
      return stream;
    };
    FS.close = (stream) => {
      if (stream.nfd !== undefined) this.descriptors.delete(stream.nfd);
      close(stream);
    };
    FS.read = (stream, buffer, offset, length, position) => {
      if (++this.reads > MAX_READS) throw new FS.ErrnoError(EIO);
      const at = position ?? stream.position;
      this.lastRead = { path: stream.path, offset: at, length };
      try {
        const done = read(stream, buffer, offset, length, position);
        this.record(stream.path, at, buffer, offset, done);
        return done;
      } catch (error) {
        this.failedRead = { path: stream.path, offset: at, error };
        throw error;
      }
    };
    FS.write = (stream, buffer, offset, length, position) => {
      if (stream.nfd !== 1 && stream.nfd !== 2) return write(stream, buffer, offset, length, position);
      if (this.printed.length < MAX_PRINTED) {
        this.printed += Buffer.from(buffer.buffer, buffer.byteOffset + offset, length).toString("latin1");
      }
      return length;
    };
  }
}

/** zlib's function of that name, over the library's memory. */
function uncompress(heap: Uint8Array, to: number, toLength: number, from: number, length: number): number {
  const room = new Uint32Array(heap.buffer, toLength, 1);
  try {
    const bytes = inflateSync(heap.subarray(from, from + length), { maxOutputLength: Math.max(room[0]!, 1) });
    heap.set(bytes, to);
    room[0] = bytes.length;
    return 0;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ERR_BUFFER_TOO_LARGE" ? Z_BUF_ERROR : Z_DATA_ERROR;
  }
}

let collecting: (() => void) | undefined;

function collect(): void {
  if (collecting === undefined) {
    setFlagsFromString("--expose-gc");
    collecting = runInNewContext("gc") as () => void;
  }
  collecting();
}

interface Loaded {
  factory: Factory;
  module: WebAssembly.Module;
  folder: string;
}

let loaded: Promise<Loaded> | undefined;

/** `module`: the library as another thread has compiled it. */
export function loadOnce(module?: WebAssembly.Module): Promise<Loaded> {
  loaded ??= load(module);
  return loaded;
}

async function load(compiled: WebAssembly.Module | undefined): Promise<Loaded> {
  // Beside the bundle (dist/agent.js), or above the compiled sources (dist/src/formats/hdf5/library.js).
  for (const place of ["./hdf5/", "../../../hdf5/"]) {
    const url = new URL(place, import.meta.url);
    if (!existsSync(new URL("hdf5.wasm", url))) continue;
    const { default: factory } = (await import(new URL("hdf5.mjs", url).href)) as { default: Factory };
    const module = compiled ?? new WebAssembly.Module(readFileSync(new URL("hdf5.wasm", url)));
    return { factory, module, folder: fileURLToPath(url).replace(/\/$/, "") };
  }
  throw new Error("the HDF5 library is missing: run `npm run build`");
}

let live: Promise<Library> | undefined;
let begun = false;

/** The instance of this thread; a fresh one where the last one cannot be used any more. One caller at a time (`thread.ts`). */
export async function liveLibrary(): Promise<Library> {
  if ((await live)?.usable !== true) {
    (await live)?.retire();
    live = undefined;
    // V8 does not see that 19 MB and more hang on a few objects, and comes too late.
    if (begun) collect();
    begun = true;
    live = Library.make();
    live.catch(() => (live = undefined));
  }
  return live!;
}
