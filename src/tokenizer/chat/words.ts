/**
 * Words: letters of words made large and small as Python does it. What JavaScript has no letters for (the title case of `ǆ`) is refused.
 *
 * @example
 * titleMethod("it's 3RD"); // "It'S 3Rd", as str.title
 * titleFilter("it's 3RD"); // "It's 3rd", as {{ text|title }}
 */

/** Runs of letters that have a case. */
const CASED = /\p{Cased}+/gu;
/** Letters whose title case is not their upper case. */
const TITLED = /[\u01c4-\u01cc\u01f1-\u01f3\u10d0-\u10ff]/;
/** `str.isspace` of Python. */
export const SPACES =
  "\t\n\v\f\r\u001c\u001d\u001e\u001f \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";
/** What stands between words for Jinja. */
const BETWEEN = new RegExp(`([-({[<${SPACES}]+)`, "u");

/** `str.title`. */
export function titleMethod(text: string): string {
  return text.replace(CASED, (word) => {
    // Which of two small sigmas stands for it depends on what is around.
    if (word.includes("\u03a3")) throw new TypeError("title of a text with \u03a3");
    return titled(word);
  });
}

/** Jinja's filter `title`. */
export function titleFilter(text: string): string {
  return text
    .split(BETWEEN)
    .map((word) => changed(word, (first) => first.toUpperCase()))
    .join("");
}

/** `str.capitalize`; one word of `str.title`. */
export function titled(text: string): string {
  return changed(text, (first) => {
    const large = first.toUpperCase();
    if (TITLED.test(first) || (large !== first && Array.from(large).length > 1)) {
      throw new TypeError(`title case of ${first}`);
    }
    return large;
  });
}

function changed(text: string, large: (first: string) => string): string {
  const [first] = text;
  return first === undefined ? "" : large(first) + text.slice(first.length).toLowerCase();
}
