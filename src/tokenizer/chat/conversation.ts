/**
 * Conversation: the messages of a record as one text, with the places that the assistant said and those where a token is to stay text.
 *
 * Contract: the text is that of `apply_chat_template`. What the assistant said is what the template says it is (`{% generation %}`);
 * else a turn reaches from the generation prompt behind the messages before it to the token that ends it, as the text of the first
 * messages alone shows. A template that writes the first messages in another way when more follow is ATH_CHAT_TEMPLATE, unless a token tells
 * where the turn begins and ends all the same.
 *
 * @example
 * const chat = new ChatRenderer(spec, compiled.added, false);
 * const { text, spans } = chat.render('[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]');
 */
import { jsonText, parseJson, type Parsed } from "../../base/exact-json.ts";
import { messageOf } from "../../base/errors.ts";
import { ChatTemplate } from "../errors.ts";
import type { Spans } from "../spans.ts";
import type { AddedToken, ChatSpec } from "../types.ts";
import { DAY, pinnedDay } from "./day.ts";
import { Guard } from "./guard.ts";
import { Refused } from "./python.ts";
import { booleanValue, listValue, valueOf, type RuntimeValue } from "./runtime.ts";
import { parseTemplate, type Marks, type Template } from "./template.ts";

/** Places are UTF-16 code units. */
export interface RenderedChat {
  text: string;
  /** Where a token begins that is to stay text. */
  literal: ReadonlySet<number>;
  /** What the assistant said: [from, to), rising. */
  spans: Spans;
}

interface Turns {
  roles: readonly string[];
  values: readonly RuntimeValue[];
  tools: RuntimeValue;
  marks: Marks;
  /** Someone says something. */
  says: boolean;
}

export class ChatRenderer {
  private readonly template: Template;
  private readonly given: ReadonlyMap<string, RuntimeValue>;
  private readonly source: string;
  private readonly tokens: readonly string[];
  private readonly guard: Guard | undefined;
  /** The template renders a plain conversation: what it does not render is that one's fault. */
  private works = false;

  /** `parseSpecial`: tokens that are spelled out in a text become themselves, as in Python. */
  constructor({ name, source, tokens, options }: ChatSpec, added: readonly AddedToken[], parseSpecial: boolean) {
    this.template = parseTemplate(source, name);
    this.source = source;
    this.tokens = added.map(({ content }) => content).filter((content) => content.trim() !== "");
    const given = new Map<string, RuntimeValue>();
    for (const text of [tokens, options]) {
      const values = parseJson(text) as Map<string, Parsed>;
      for (const [key, value] of values) given.set(key, key === DAY ? pinnedDay(value) : valueOf(value, String));
    }
    this.given = given;
    const { written, examined } = this.template;
    const plain = this.plain();
    this.guard = parseSpecial ? undefined : new Guard(added, written, plain, examined);
  }

  /** `messages` and `tools`: JSON. Throws `Refused` for what is no conversation, or none to the template. */
  render(messages: string, tools?: string): RenderedChat {
    const turns = this.turns(messages, tools);
    const full = this.text(turns, turns.values.length, false);
    if (turns.says && isBlank(full)) throw this.silent();
    if (this.template.generation) return cleaned(full, turns.marks);
    const { roles } = turns;
    const spans = roles.flatMap((role, i) => (role === "assistant" ? [this.span(turns, i, full)] : []));
    return cleaned(full, turns.marks, spans);
  }

  private turns(json: string, toolsJson: string | undefined): Turns {
    const marks = marksFor([this.source, json, toolsJson ?? ""]);
    const messages = parsed(json, "messages");
    if (!Array.isArray(messages)) throw new Refused("the messages are no list");
    const roles = messages.map((message, i) => {
      const role = message instanceof Map ? message.get("role") : undefined;
      if (typeof role !== "string") throw new Refused(`message ${i} is no object with a "role"`);
      return role;
    });
    const { guard } = this;
    const values = messages.map((message, i) =>
      valueOf(message, (text) => (guard === undefined ? text : guard.text(text, roles[i]!, marks.text))),
    );
    // Tools are described by whoever writes the system prompt.
    const tools = valueOf(toolsJson === undefined ? null : parsed(toolsJson, "tools"), (text) =>
      guard === undefined ? text : guard.text(text, "system", marks.text),
    );
    const says = messages.some((message) => saysSomething((message as Map<string, Parsed>).get("content")));
    return { roles, values, tools, marks, says };
  }

  /** The first messages alone. */
  private text({ values, tools, marks }: Turns, messages: number, prompt: boolean): string {
    const variables = new Map<string, RuntimeValue>([
      ["messages", listValue(values.slice(0, messages))],
      ["tools", tools],
      ["documents", valueOf(null, String)],
      ["add_generation_prompt", booleanValue(prompt)],
      ...this.given,
    ]);
    try {
      return this.template.render(variables, marks);
    } catch (error) {
      if (!this.works || !(error instanceof ChatTemplate)) throw error;
      throw new Refused(messageOf(error.cause));
    }
  }

  /** Where turn `i` lies in the text of all, marks included. */
  private span(turns: Turns, i: number, full: string): [number, number] {
    const from = this.begin(turns, i, full);
    const upTo = this.text(turns, i + 1, false);
    const closing = this.lastToken(upTo.trimEnd());
    if (full.startsWith(upTo) && upTo.length >= from) {
      // White space behind the token that ends the turn is the template's.
      const end = upTo.trimEnd().length;
      return [from, closing !== undefined && end >= from ? end : upTo.length];
    }
    const at = closing === undefined ? -1 : full.indexOf(closing, from);
    if (at < 0) throw this.unstable(i, "ends");
    return [from, at + (closing as string).length];
  }

  private begin(turns: Turns, i: number, full: string): number {
    const prompted = this.text(turns, i, true);
    if (full.startsWith(prompted)) return prompted.length;
    const before = this.text(turns, i, false);
    let common = 0;
    while (common < full.length && full[common] === prompted[common]) common++;
    // The prompt goes on where the text does not (DeepSeek-R1: `<think>`): its last token that both have.
    for (let to = common; to > before.length; to--) {
      if (this.lastToken(full.slice(before.length, to)) !== undefined) return to;
    }
    throw this.unstable(i, "begins");
  }

  /** The longest token with which a text ends. */
  private lastToken(text: string): string | undefined {
    let longest: string | undefined;
    for (const token of this.tokens) {
      if (text.endsWith(token) && token.length > (longest?.length ?? 0)) longest = token;
    }
    return longest;
  }

  private unstable(turn: number, does: "begins" | "ends"): Error {
    return new ChatTemplate(
      `the chat template ${this.template.name} does not tell where message ${turn} of the assistant ${does}: it writes the messages ` +
        "before in another way when more follow",
      {},
      "put {% generation %} and {% endgeneration %} around what the assistant says, and give that template with chat_template=",
    );
  }

  private silent(): Error {
    if (this.works) return new Refused("it writes nothing of it");
    return new ChatTemplate(
      `the chat template ${this.template.name} writes nothing of a conversation`,
      {},
      "mend it, or give another one with chat_template=",
    );
  }

  /** What the template writes around what a user says, and up to the first token of the assistant's turn. */
  private plain(): string[] {
    const message = (role: string): RuntimeValue =>
      valueOf(
        new Map([
          ["role", role],
          ["content", "0"],
        ]),
        String,
      );
    const marks = marksFor([this.source]);
    const texts: string[] = [];
    for (const roles of [["user"], ["system", "user"]]) {
      const turns = { roles, values: roles.map(message), tools: valueOf(null, String), marks, says: true };
      try {
        const said = this.text(turns, roles.length, false);
        texts.push(said);
        if (isBlank(said)) continue;
        this.works = true;
        const prompted = this.text(turns, roles.length, true);
        if (prompted.startsWith(said)) texts.push(this.firstToken(prompted.slice(said.length)));
      } catch (error) {
        if (!(error instanceof Refused) && !(error instanceof ChatTemplate)) throw error;
      }
    }
    return texts;
  }

  private firstToken(text: string): string {
    const found = this.tokens
      .map((token) => ({ token, at: text.indexOf(token) }))
      .filter(({ at }) => at >= 0)
      .sort((a, b) => a.at - b.at || b.token.length - a.token.length);
    return found[0]?.token ?? "";
  }
}

function parsed(json: string, what: string): Parsed {
  try {
    return parseJson(json);
  } catch (error) {
    throw new Refused(`the ${what} are no JSON: ${messageOf(error)}`);
  }
}

function saysSomething(content: Parsed | undefined): boolean {
  return typeof content === "string" ? content.trim() !== "" : Array.isArray(content) && content.length > 0;
}

/** Nothing but white space and marks. */
function isBlank(text: string): boolean {
  return !/[^\s\ufdd0-\ufdef]/.test(text);
}

const FIRST_MARK = 0xfdd0;
const MARKS = 32;
const MARK = /[\ufdd0-\ufdef]/g;
const MAYBE = /[\ufdd0-\ufdef]|\\ufd/i;

/** Noncharacters of Unicode that none of the texts has. */
function marksFor(texts: readonly string[]): Marks {
  const used = new Set<string>();
  for (const text of texts) {
    if (!MAYBE.test(text)) continue;
    for (const [mark] of unescaped(text).matchAll(MARK)) used.add(mark);
  }
  const free = Array.from({ length: MARKS }, (_, i) => String.fromCharCode(FIRST_MARK + i)).filter(
    (mark) => !used.has(mark),
  );
  const [text, open, close] = free;
  if (close === undefined) throw new Refused("the text holds nearly all noncharacters of Unicode");
  return { text: text!, open: open!, close };
}

/** JSON with its characters as they are; what is no JSON as it is. */
function unescaped(text: string): string {
  try {
    return jsonText(parseJson(text)) + text;
  } catch {
    return text;
  }
}

/** The text without marks. `spans` count characters with marks; without them they are what lies between the marks. */
function cleaned(full: string, marks: Marks, spans?: Spans): RenderedChat {
  const { text: literalMark, open, close } = marks;
  const literal = new Set<number>();
  const found: [number, number][] = [];
  const places: number[] = [];
  let text = "";
  let at = 0;
  let begun = -1;
  for (const { 0: mark, index } of full.matchAll(new RegExp(`[${literalMark}${open}${close}]`, "g"))) {
    text += full.slice(at, index);
    at = index + 1;
    places.push(index);
    if (mark === literalMark) {
      const unit = text.charCodeAt(text.length - 1);
      literal.add(text.length - (unit >= 0xdc00 && unit <= 0xdfff ? 2 : 1));
    } else if (mark === open) begun = text.length;
    else if (begun >= 0) {
      found.push([begun, text.length]);
      begun = -1;
    }
  }
  text += full.slice(at);
  if (spans === undefined) return { text, literal, spans: found };
  let passed = 0;
  const moved = (place: number): number => {
    while (passed < places.length && places[passed]! < place) passed++;
    return place - passed;
  };
  return { text, literal, spans: spans.map(([from, to]) => [moved(from), moved(to)] as const) };
}
