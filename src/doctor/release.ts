/**
 * Releases of Lustre, in order.
 *
 * @example
 * before(releaseOf("2.12.3_ddn39"), [2, 15, 0]); // true
 */
export type Release = readonly [number, number, number];

/** `2.12.3_ddn39` → 2, 12, 3. */
export function releaseOf(text: string): Release {
  const [major = 0, minor = 0, patch = 0] = text.split(/[^\d]+/).map(Number);
  return [major, minor, patch];
}

export function before(a: Release, b: Release): boolean {
  const differs = a.findIndex((part, i) => part !== b[i]);
  return differs >= 0 && a[differs]! < b[differs]!;
}
