/**
 * Normalizers of `tokenizer.json` that can stand before byte-level BPE.
 *
 * @example
 * normalizerOf({ type: "NFC" })?.("e\u0301"); // "é"
 */
import { TokenizerUnsupported } from "./errors.ts";
import { compilePattern, literalPattern } from "./pattern.ts";
import { normalForm } from "./unicode.ts";
import type { Part } from "./types.ts";

export type Normalize = (text: string) => string;

/** Undefined: text stays as it is. */
export function normalizerOf(part: Part | null): Normalize | undefined {
  if (part === null) return undefined;
  switch (part.type) {
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD": {
      const form = part.type;
      return (text) => normalForm(text, form);
    }
    case "Lowercase":
      // Character by character: a final sigma is like any other.
      return (text) => Array.from(text, (char) => char.toLowerCase()).join("");
    case "Prepend": {
      const prefix = String(part["prepend"]);
      return (text) => (text === "" ? text : prefix + text);
    }
    case "Replace": {
      const { Regex, String: plain } = part["pattern"] as { Regex?: string; String?: string };
      const regex = compilePattern(Regex ?? literalPattern(plain ?? ""), "g");
      const content = String(part["content"]);
      return (text) => text.replace(regex, () => content);
    }
    case "Sequence": {
      const steps = (part["normalizers"] as Part[])
        .map((inner) => normalizerOf(inner))
        .filter((step) => step !== undefined);
      return steps.length === 0 ? undefined : (text) => steps.reduce((done, step) => step(done), text);
    }
    default:
      throw new TokenizerUnsupported(`the normalizer ${part.type} is not one that byte-level BPE is read with`);
  }
}
