/**
 * Day: `strftime_now` of a template for a day that the user has pinned. transformers gives the time of the call, which would change a
 * record's tokens from one day to the next.
 *
 * @example
 * strftime(new Date(Date.UTC(2026, 0, 31)), "%d %b %Y"); // "31 Jan 2026"
 */
import { ChatTemplate } from "../errors.ts";
import { functionValue, textValue, type RuntimeValue } from "./runtime.ts";

export const DAY = "strftime_now";

const PINNED = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?)?$/;
const DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");
const MONTHS = "January February March April May June July August September October November December".split(" ");

/** The function for a day as the user wrote it: "2026-01-31", with "T09:30" or "T09:30:00" where the hour matters. */
export function pinnedDay(written: unknown): RuntimeValue {
  const [, year, month, day, hour = "0", minute = "0", second = "0"] = PINNED.exec(String(written)) ?? [];
  const at = new Date(Date.UTC(+year!, +month! - 1, +day!, +hour, +minute, +second));
  const said = [at.getUTCMonth() + 1, at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()];
  if (String(said) !== String([month, day, hour, minute, second].map(Number))) {
    throw new ChatTemplate(
      `chat_template_kwargs must pin ${DAY} to a day as "2026-01-31" or "2026-01-31T09:30:00", got ${JSON.stringify(written)}`,
      {},
      "write the day that the template is to be told",
    );
  }
  return functionValue(([format]) => textValue(strftime(at, String(format?.value))));
}

/** `strftime` in the C locale, of UTC. Throws for what is not known here. */
export function strftime(at: Date, format: string): string {
  return format.replace(/%(-?)(.?)/gsu, (whole, bare: string, letter: string) => {
    const [text, width, fill = "0"] = part(at, letter) ?? [];
    if (text === undefined) throw new RangeError(`${DAY} with ${whole}`);
    return bare === "" ? String(text).padStart(width ?? 0, fill) : String(text);
  });
}

/** Text or number, and how wide it is at least. */
function part(at: Date, letter: string): readonly [text: string | number, width?: number, fill?: string] | undefined {
  const [year, month, day] = [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate()];
  const [hour, weekday] = [at.getUTCHours(), at.getUTCDay()];
  switch (letter) {
    case "a":
      return [DAYS[weekday]!.slice(0, 3)];
    case "A":
      return [DAYS[weekday]!];
    case "b":
    case "h":
      return [MONTHS[month]!.slice(0, 3)];
    case "B":
      return [MONTHS[month]!];
    case "d":
      return [day, 2];
    case "e":
      return [day, 2, " "];
    case "m":
      return [month + 1, 2];
    case "y":
      return [year % 100, 2];
    case "Y":
      return [year];
    case "H":
      return [hour, 2];
    case "I":
      return [((hour + 11) % 12) + 1, 2];
    case "M":
      return [at.getUTCMinutes(), 2];
    case "S":
      return [at.getUTCSeconds(), 2];
    case "p":
      return [hour < 12 ? "AM" : "PM"];
    case "j":
      return [(Date.UTC(year, month, day) - Date.UTC(year, 0, 1)) / 86_400_000 + 1, 3];
    case "w":
      return [weekday];
    case "u":
      return [weekday === 0 ? 7 : weekday];
    case "F":
      return [strftime(at, "%Y-%m-%d")];
    case "T":
      return [strftime(at, "%H:%M:%S")];
    case "%":
      return ["%"];
    default:
      return undefined;
  }
}
