/**
 * Digits: integers of a JSON list in plain TypeScript; see `assembly/digits.ts`, whose semantics it repeats.
 *
 * @example
 * readDigits(Buffer.from("1,2,3]"), 0, 6, out); // { count: 2, next: 4 }
 */

export interface Digits {
  /** Integers that were taken. */
  count: number;
  /** Behind the last comma that was taken. */
  next: number;
}

export function readDigits(bytes: Uint8Array, from: number, to: number, out: Int32Array): Digits {
  let at = from;
  let count = 0;
  for (; count < out.length; count++) {
    let p = at;
    if (p < to && bytes[p] === 0x20) p++;
    const negative = p < to && bytes[p] === 0x2d;
    if (negative) p++;
    const first = p;
    let value = 0;
    while (p < to && p - first < 10) {
      const digit = bytes[p]! - 0x30;
      if (!(digit >= 0 && digit <= 9)) break;
      value = value * 10 + digit;
      p++;
    }
    const length = p - first;
    // 10 digits or more may not fit int32; a number does not begin with 0.
    if (length === 0 || length > 9 || p >= to || bytes[p] !== 0x2c || (length > 1 && bytes[first] === 0x30)) break;
    out[count] = negative ? -value : value;
    at = p + 1;
  }
  return { count, next: at };
}
