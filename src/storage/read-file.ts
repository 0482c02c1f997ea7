/** Reads one small file whole, through the I/O threads. */
import type { Storage } from "./types.ts";

export async function readFile(storage: Storage, uri: string): Promise<Uint8Array> {
  const object = await storage.open(uri);
  try {
    const bytes = new Uint8Array(object.size);
    await object.readInto(bytes, 0);
    return bytes;
  } finally {
    await object.close();
  }
}
