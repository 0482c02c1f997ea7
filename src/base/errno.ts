/**
 * Names of error numbers. Node has none for some (EDQUOT, ESTALE): its code for those is "Unknown system error -122", or "UNKNOWN" where
 * a call was waited for (`writeSync`).
 *
 * @example
 * errnoName(error); // "EDQUOT"
 */
import { constants } from "node:os";

/** Undefined: not an error of the system. */
export function errnoName(error: unknown): string | undefined {
  const { code, errno } = error as NodeJS.ErrnoException;
  if (errno === undefined || (code !== undefined && !/^unknown/i.test(code))) return code;
  return Object.entries(constants.errno).find(([, number]) => number === -errno)?.[0] ?? `error ${-errno}`;
}
