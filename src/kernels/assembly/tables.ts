import { FOURS_LONG } from "./fours";
import { TABLE_FOURS, TABLE_POWERS, TABLE_SEPTETS, TABLE_SHUFFLE, TABLE_ZEROS } from "./layout";

const POLYNOMIAL: u32 = 0x82f63b78;

/** Address of the tables in this memory; see layout.ts. */
export let tables: usize = 0;

export function useTables(at: usize): void {
  tables = at;
}

/** Writes the tables. Once a memory: other threads may be reading them later. */
export function initTables(): void {
  for (let i: u32 = 0; i < 256; i++) {
    let c = i;
    for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ POLYNOMIAL : c >>> 1;
    store<u32>(tables + (i << 2), c);
  }
  for (let i: u32 = 256; i < 4096; i++) {
    const before = load<u32>(tables + ((i - 256) << 2));
    store<u32>(tables + (i << 2), (before >>> 8) ^ load<u32>(tables + ((before & 255) << 2)));
  }
  initZeros();
  initPowers();
  initFours();
}

// The lengths of four varints, as digits to the base 3, number the shuffles.
function initFours(): void {
  v128.store(tables, i32x4.splat(0x007f7f7f), TABLE_SEPTETS);
  v128.store(tables, i32x4.splat(0x007f007f), TABLE_SEPTETS + 16);
  v128.store(tables, i32x4.splat(0x40000001), TABLE_SEPTETS + 32);
  memory.fill(tables + TABLE_SHUFFLE, 0x80, 81 << 4); // a lane index ≥ 16 gives 0
  for (let mask: u32 = 0; mask < 4096; mask++) {
    let number: u32 = 0;
    let at: u32 = 0;
    let long = false;
    for (let id: u32 = 0; id < 4; id++) {
      const more: u32 = ctz(~(mask >>> at));
      if (more > 2) long = true;
      number = number * 3 + more;
      at += more + 1;
    }
    store<u16>(tables + TABLE_FOURS + (mask << 1), long ? FOURS_LONG : (number << 4) | at);
    if (long) continue;
    at = 0;
    for (let id: u32 = 0; id < 4; id++) {
      const shuffle = tables + TABLE_SHUFFLE + (number << 4) + (id << 2);
      const stop = at + ctz(~(mask >>> at)) + 1;
      for (let byte: u32 = 0; at < stop; byte++) store<u8>(shuffle + byte, at++);
    }
  }
}

function initZeros(): void {
  for (let i: u32 = 0; i < 1024; i++) {
    let c = (i & 255) << ((i >>> 8) << 3);
    for (let n: u32 = 0; n < 64; n++) c = load<u32>(tables + ((c & 255) << 2)) ^ (c >>> 8);
    store<u32>(tables + TABLE_ZEROS + (i << 2), c);
  }
}

function initPowers(): void {
  const at = tables + TABLE_POWERS;
  const byte: u32 = 0x00800000; // x^8
  store<u32>(at, 0x80000000); // 1
  for (let i: u32 = 1; i < 256; i++) store<u32>(at + (i << 2), multiply(load<u32>(at + ((i - 1) << 2)), byte));
  const page = multiply(load<u32>(at + (255 << 2)), byte);
  store<u32>(at, 0x80000000, 1024);
  for (let i: u32 = 1; i < 256; i++)
    store<u32>(at + (i << 2), multiply(load<u32>(at + ((i - 1) << 2), 1024), page), 1024);
  let power = multiply(load<u32>(at + (255 << 2), 1024), page);
  for (let k: u32 = 0; k < 16; k++) {
    store<u32>(at + (k << 2), power, 2048);
    power = multiply(power, power);
  }
}

/** a · b modulo the polynomial; bit 31 is x^0, as in the CRC itself. */
export function multiply(a: u32, b: u32): u32 {
  let product: u32 = 0;
  for (let i = 0; i < 32; i++) {
    product ^= b & (0 - (a >>> 31));
    a <<= 1;
    b = (b >>> 1) ^ (POLYNOMIAL & (0 - (b & 1)));
  }
  return product;
}
