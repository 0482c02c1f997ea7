/**
 * Waiting that can be given up.
 *
 * Contract: what is waited for goes on; only its waiter leaves, with the reason of the signal. Nothing is kept at the signal afterwards.
 *
 * @example
 * await unlessAborted(restores.arrival(path), run.over);
 */
export function unlessAborted<Result>(work: Promise<Result>, signal: AbortSignal | undefined): Promise<Result> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const leave = (): void => reject(signal.reason as Error);
    if (signal.aborted) leave();
    else signal.addEventListener("abort", leave, { once: true });
    const over = (): void => signal.removeEventListener("abort", leave);
    work.then(resolve, reject).finally(over);
  });
}
