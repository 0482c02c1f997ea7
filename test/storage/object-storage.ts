// Objects in memory, as S3 keeps them: keys and no folders, an ETag for each content, times of whole seconds.
import { createHash } from "node:crypto";
import { NotFound, changedError, truncatedError } from "../../src/storage/errors.ts";
import { FOLDER_MARKS, LISTED_HIDDEN } from "../../src/storage/types.ts";
import type { ListedObject, NameFilter, ObjectVersion, ReadableObject, Storage } from "../../src/storage/types.ts";

interface Stored {
  bytes: Uint8Array;
  version: ObjectVersion;
}

export class ObjectStorage implements Storage {
  /** Keys that were read, in order. */
  readonly gets: string[] = [];
  private readonly objects = new Map<string, Stored>();

  /** All objects get the same time: nothing but the ETag tells them apart. */
  put(key: string, bytes: Uint8Array): void {
    const etag = createHash("md5").update(bytes).digest("hex");
    this.objects.set(key, { bytes, version: { size: bytes.length, mtimeNs: 1_700_000_000n * 10n ** 9n, etag } });
  }

  delete(key: string): void {
    this.objects.delete(key);
  }

  keys(): string[] {
    return [...this.objects.keys()];
  }

  async open(uri: string, expected?: ObjectVersion): Promise<ReadableObject> {
    const { version } = this.find(uri, expected);
    const readInto = async (target: Uint8Array, offset: number): Promise<number> => {
      // `If-Match`.
      const part = this.find(uri, version).bytes.subarray(offset, offset + target.length);
      this.gets.push(uri);
      target.set(part);
      return part.length;
    };
    return { uri, size: version.size, version, readInto, close: () => Promise.resolve() };
  }

  async readShared(
    uri: string,
    expected: ObjectVersion | undefined,
    buffer: SharedArrayBuffer,
    byteOffset: number,
    offset: number,
    length: number,
  ): Promise<number> {
    const part = this.find(uri, expected).bytes.subarray(offset, offset + length);
    this.gets.push(uri);
    if (part.length < length) throw truncatedError(uri, offset, part.length, length);
    new Uint8Array(buffer, byteOffset, length).set(part);
    return length;
  }

  async list(folder: string): Promise<ListedObject[]> {
    const names = await this.names(folder);
    return names.map((path) => ({ path, version: this.find(`${folder}/${path}`).version }));
  }

  async names(folder: string, filter?: NameFilter): Promise<string[]> {
    const below = this.keys().flatMap((key) => (key.startsWith(`${folder}/`) ? [key.slice(folder.length + 1)] : []));
    const marked = below.flatMap((key) =>
      FOLDER_MARKS.includes(lastPart(key)) ? [key.slice(0, -lastPart(key).length)] : [],
    );
    const inMarked = (key: string): boolean => marked.some((prefix) => key.startsWith(prefix));
    const wanted = below.filter((key) => {
      const hidden = key.split("/").find((part) => part.startsWith("."));
      if (hidden !== undefined && !(inMarked(key) && LISTED_HIDDEN.includes(hidden))) return false;
      if (filter === undefined) return true;
      return (
        filter.files.test(key) ||
        marked.some((prefix) => key.startsWith(prefix) && filter.files.test(prefix.slice(0, -1)))
      );
    });
    return wanted.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  }

  async stat(uri: string): Promise<ObjectVersion & { kind: "file" | "folder" }> {
    if (this.keys().some((key) => key.startsWith(`${uri}/`))) return { size: 0, mtimeNs: 0n, kind: "folder" };
    return { ...this.find(uri).version, kind: "file" };
  }

  close(): Promise<boolean> {
    return Promise.resolve(true);
  }

  private find(uri: string, expected?: ObjectVersion): Stored {
    const found = this.objects.get(uri);
    if (found === undefined) throw new NotFound("no such object", { file: uri });
    const { size, mtimeNs, etag } = found.version;
    if (expected === undefined) return found;
    const isSame = size === expected.size && mtimeNs === expected.mtimeNs && (expected.etag ?? etag) === etag;
    if (!isSame) throw changedError(uri, found.version, expected);
    return found;
  }
}

function lastPart(key: string): string {
  return key.slice(key.lastIndexOf("/") + 1);
}
