/** Reads one small file whole, through the I/O threads. */
import type { ReadableObject, Storage } from "./types.ts";

export async function readFile(storage: Storage, uri: string): Promise<Uint8Array> {
  return await readAndClose(await storage.open(uri));
}

export async function readAndClose(object: ReadableObject): Promise<Uint8Array> {
  try {
    const bytes = new Uint8Array(object.size);
    await object.readInto(bytes, 0);
    return bytes;
  } finally {
    await object.close();
  }
}
