/**
 * Text as a terminal may have it: control characters, which names and values from files can hold, are shown and not obeyed (an escape
 * sequence could hide or colour what follows). Lines and tabs stay; a line of JSON stays the same JSON.
 *
 * @example
 * process.stderr.write(`${visible(`bad ${path}`)}\n`);
 */
export function visible(text: string): string {
  return text.replace(/[^\P{Cc}\t\n]/gu, escaped);
}

/** A character as JSON and bash write it: `\u001b`. */
export function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
