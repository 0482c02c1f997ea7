/**
 * Halves: floats of 16 bits as float32, exactly.
 *
 * @example
 * fromFloat16(Uint16Array.of(0x3c00)); // [1]
 * fromBfloat16(Uint16Array.of(0x3f80)); // [1]
 */

/** IEEE 754 binary16. */
export function fromFloat16(halves: Uint16Array): Float32Array<ArrayBuffer> {
  return Float32Array.from(halves, halfToFloat);
}

/** The upper halves of float32. */
export function fromBfloat16(halves: Uint16Array): Float32Array<ArrayBuffer> {
  return new Float32Array(Uint32Array.from(halves, (bits) => bits << 16).buffer);
}

function halfToFloat(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  if (exponent === 31) return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (1024 + mantissa) * 2 ** (exponent - 25);
}
