import { TABLE_LEN, TABLE_SHUFFLE } from "./layout";

/** Address of the tables in this memory; see layout.ts. */
export let tables: usize = 0;

export function useTables(at: usize): void {
  tables = at;
}

/** Writes the tables. Once a memory: other threads may be reading them later. */
export function initTables(): void {
  for (let i: u32 = 0; i < 256; i++) {
    let c = i;
    for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
    store<u32>(tables + (i << 2), c);
  }
  for (let i: u32 = 256; i < 4096; i++) {
    const before = load<u32>(tables + ((i - 256) << 2));
    store<u32>(tables + (i << 2), (before >>> 8) ^ load<u32>(tables + ((before & 255) << 2)));
  }
  for (let mask: u32 = 0; mask < 4096; mask++) {
    const shuffle = tables + TABLE_SHUFFLE + (mask << 4);
    memory.fill(shuffle, 0x80, 16); // a lane index ≥ 16 gives 0
    let at: u32 = 0;
    for (let id: u32 = 0; id < 4; id++) {
      let bytes: u32 = 0;
      let more = true;
      while (more && bytes < 3 && at < 12) {
        store<u8>(shuffle + (id << 2) + bytes, <u8>at);
        more = ((mask >> at) & 1) != 0;
        at++;
        bytes++;
      }
      if (more) {
        at = 0;
        break;
      }
    }
    store<u8>(tables + TABLE_LEN + mask, <u8>at);
  }
}
