/**
 * Unicode as `tokenizers` knows it, whatever version this Node has: its regular expressions are of Unicode 16, its normal forms of
 * Unicode 9. Node's ICU may be of Unicode 17: new characters are taken out of every property again, and normal forms leave alone
 * what was no character then. A test against the Python library goes over all characters: it fails under a Node with a
 * newer Unicode until this page knows it.
 */

/** Characters that are new in Unicode 17. */
const NEW =
  String.raw`\u088f\u0c5c\u0cdc\u1acf-\u1add\u1ae0-\u1aeb\u20c1\u2b96\ua7ce-\ua7cf\ua7d2\ua7d4\ua7f1\ufbc3-\ufbd2` +
  String.raw`\ufd90-\ufd91\ufdc8-\ufdce\u{10940}-\u{10959}\u{10ec5}-\u{10ec7}\u{10ed0}-\u{10ed8}\u{10efa}-\u{10efb}` +
  String.raw`\u{11b60}-\u{11b67}\u{11db0}-\u{11ddb}\u{11de0}-\u{11de9}\u{16ea0}-\u{16eb8}\u{16ebb}-\u{16ed3}` +
  String.raw`\u{16ff2}-\u{16ff6}\u{187f8}-\u{187ff}\u{18d09}-\u{18d1e}\u{18d80}-\u{18df2}\u{1ccfa}-\u{1ccfc}` +
  String.raw`\u{1ceba}-\u{1ced0}\u{1cee0}-\u{1cef0}\u{1e6c0}-\u{1e6de}\u{1e6e0}-\u{1e6f5}\u{1e6fe}-\u{1e6ff}\u{1f6d8}` +
  String.raw`\u{1f777}-\u{1f77a}\u{1f8d0}-\u{1f8d8}\u{1fa54}-\u{1fa57}\u{1fa8a}\u{1fa8e}\u{1fac8}\u{1facd}\u{1faea}` +
  String.raw`\u{1faef}\u{1fbfa}\u{2b73a}-\u{2b73f}\u{2cea2}-\u{2cead}\u{323b0}-\u{33479}`;

/** U+0295 was a letter with a case until Unicode 17. */
const EXCEPTIONS: Record<string, string> = { Ll: String.raw`[\p{Ll}\u0295]`, Lo: String.raw`[\p{Lo}--[\u0295]]` };

/** A property by its general category or script, as a set for the flag `v`; undefined: JavaScript does not have it. */
export function propertySet(name: string): string | undefined {
  for (const form of [name, `Script=${name}`]) {
    const property = EXCEPTIONS[name] ?? `\\p{${form}}`;
    if (!compiles(property)) continue;
    if (name === "C" || name === "Cn") return `[${property}${NEW}]`;
    return name === "White_Space" ? property : `[${property}--[${NEW}]]`;
  }
  return undefined;
}

function compiles(source: string): boolean {
  try {
    return new RegExp(source, "v").source !== "";
  } catch {
    return false;
  }
}

/** `\w` inside of a set, and alone, where Oniguruma counts the digits and fractions of Latin-1 too. */
export const wordInSet = ["Alphabetic", "M", "Nd", "Pc"].map((name) => propertySet(name)!).join("");
export const wordAlone = `${wordInSet}\\u00b2\\u00b3\\u00b9\\u00bc-\\u00be`;

/** Characters since Unicode 10 that decompose, compose or are put in order: to `tokenizers` they are none of these. */
const INERT =
  String.raw`\u07fd\u0897-\u089f\u08ca-\u08d3\u09fe\u0c3c\u0d3b-\u0d3c\u0eba\u1715\u1abf-\u1add\u1ae0-\u1aeb` +
  String.raw`\u1df6-\u1dfa\u32ff\ua7f1-\ua7f4\ua82c\uab69\u{105c9}\u{105d2}\u{105da}\u{105e4}\u{10781}-\u{10785}` +
  String.raw`\u{10787}-\u{107b0}\u{107b2}-\u{107ba}\u{10d24}-\u{10d27}\u{10d69}-\u{10d6d}\u{10eab}-\u{10eac}` +
  String.raw`\u{10efa}-\u{10efb}\u{10efd}-\u{10eff}\u{10f46}-\u{10f50}\u{10f82}-\u{10f85}\u{11070}\u{1133b}` +
  String.raw`\u{11382}-\u{11385}\u{1138b}\u{1138e}\u{11390}-\u{11391}\u{113b8}\u{113bb}\u{113c2}\u{113c5}` +
  String.raw`\u{113c7}-\u{113c9}\u{113ce}-\u{113d0}\u{1145e}\u{11839}-\u{1183a}\u{11930}\u{11935}\u{11938}` +
  String.raw`\u{1193d}-\u{1193e}\u{11943}\u{119e0}\u{11a34}\u{11a47}\u{11a99}\u{11d42}\u{11d44}-\u{11d45}` +
  String.raw`\u{11d97}\u{11f41}-\u{11f42}\u{1611e}-\u{16129}\u{1612f}\u{16d63}\u{16d67}-\u{16d6a}` +
  String.raw`\u{16ff0}-\u{16ff1}\u{1ccd6}-\u{1ccf9}\u{1e030}-\u{1e06d}\u{1e08f}\u{1e130}-\u{1e136}\u{1e2ae}` +
  String.raw`\u{1e2ec}-\u{1e2ef}\u{1e4ec}-\u{1e4ef}\u{1e5ee}-\u{1e5ef}\u{1e6e3}\u{1e6e6}\u{1e6ee}-\u{1e6ef}` +
  String.raw`\u{1e6f5}\u{1f16c}\u{1fbf0}-\u{1fbf9}`;
const inert = new RegExp(`[${INERT}]`, "v");
const apart = new RegExp(`([${INERT}])`, "v");

/** `String.normalize` with the tables of Unicode 9. */
export function normalForm(text: string, form: "NFC" | "NFD" | "NFKC" | "NFKD"): string {
  if (!inert.test(text)) return text.normalize(form);
  // Pieces at odd places are the inert characters.
  return text
    .split(apart)
    .map((piece, i) => (i % 2 === 1 ? piece : piece.normalize(form)))
    .join("");
}
