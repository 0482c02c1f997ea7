/** Index of the last of the first `count` ascending values that is at most `value`; 0 when all are above it. */
export function lastAtMost(sorted: ArrayLike<number>, count: number, value: number): number {
  let low = 0;
  let high = count - 1;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if ((sorted[middle] as number) <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}
