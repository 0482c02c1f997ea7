/**
 * Template: a chat template of a tokenizer, as Hugging Face's `apply_chat_template` renders it.
 *
 * Looked at: `@huggingface/jinja` (pure JavaScript, no dependencies, made for chat templates), which is used, with Python's
 * meaning of text methods and of `tojson` put in (`python.ts`); nunjucks (another dialect, compiles to JavaScript and runs it).
 *
 * Contract: a template sees the conversation, what it is given by name, and nothing else: no clock, no files, no objects of
 * JavaScript. It is not trusted: whoever renders it bounds its time. What it takes for the words of the assistant
 * (`{% generation %}`) stands in the text between `marks.open` and `marks.close`.
 *
 * @example
 * const template = parseTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", "chat_template.jinja");
 * template.render({ messages }, marks);
 */
import { parse, tokenize } from "@huggingface/jinja";
import { messageOf } from "../../base/errors.ts";
import { ChatTemplate } from "../errors.ts";
import { DAY } from "./day.ts";
import { mendLoops } from "./loops.ts";
import { globalsOf, Refused, usePython, type Node } from "./python.ts";
import { booleanValue, run, textValue, valueOf, type RuntimeValue, type Tree } from "./runtime.ts";

/** Characters that stand for something in a rendered text and for nothing else. */
export interface Marks {
  /** The character before begins a token that is to stay text. */
  text: string;
  open: string;
  close: string;
}

export interface Template {
  /** For messages. */
  readonly name: string;
  /** Tells itself which words are the assistant's. */
  readonly generation: boolean;
  /** Texts that it writes, and those that it looks for in what it is given. */
  readonly written: ReadonlySet<string>;
  readonly examined: ReadonlySet<string>;
  /** Throws `Refused` for a conversation that the template does not take; ATH_CHAT_TEMPLATE for what it cannot do. */
  render(variables: ReadonlyMap<string, RuntimeValue>, marks: Marks): string;
}

const GENERATION = /\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}/g;
/** Longest text of one conversation: characters. */
const MAX_TEXT = 1 << 26;

export function parseTemplate(source: string, name: string): Template {
  const written = new Set<string>();
  const examined = new Set<string>();
  let tree: Tree;
  try {
    tree = parse(tokenize(withMarks(source), { lstrip_blocks: true, trim_blocks: true })) as Tree;
    usePython(tree, (node) => note(node, written, examined));
    mendLoops(tree);
  } catch (error) {
    // The library's parser runs over the end of a template whose last block is open.
    const why = error instanceof TypeError ? "it does not parse, a block in it is not closed" : messageOf(error);
    throw new ChatTemplate(
      `the chat template ${name} cannot be read: ${why}`,
      {},
      "mend it, or give another one with chat_template=",
      error,
    );
  }
  return {
    name,
    generation: source.search(GENERATION) >= 0,
    written,
    examined,
    render: (variables, marks) => render(tree, name, source.includes(DAY), variables, marks),
  };
}

function render(
  tree: Tree,
  name: string,
  asksForDay: boolean,
  variables: ReadonlyMap<string, RuntimeValue>,
  { text: mark, open, close }: Marks,
): string {
  try {
    const text = run(tree, [
      ...CONSTANTS,
      ...globalsOf(mark + open + close),
      ...variables,
      ["athanor_open", textValue(open)],
      ["athanor_close", textValue(close)],
    ]);
    if (text.length > MAX_TEXT) throw new RangeError(`it made ${text.length} characters of one conversation`);
    return text.toWellFormed();
  } catch (error) {
    if (error instanceof Refused) throw error;
    if (asksForDay && !variables.has(DAY)) {
      throw new ChatTemplate(
        `the chat template ${name} cannot be used: it asks for the day (${DAY}), and tokens must not depend on it`,
        {},
        `pin the day: chat_template_kwargs={"${DAY}": "2026-01-31"}`,
        error,
      );
    }
    throw new ChatTemplate(
      `the chat template ${name} cannot be used: ${messageOf(error)}`,
      {},
      "see whether Python's apply_chat_template takes the conversation; else give another template with chat_template=",
      error,
    );
  }
}

const CONSTANTS: readonly [string, RuntimeValue][] = [
  ...["true", "True"].map((name): [string, RuntimeValue] => [name, booleanValue(true)]),
  ...["false", "False"].map((name): [string, RuntimeValue] => [name, booleanValue(false)]),
  ...["none", "None"].map((name): [string, RuntimeValue] => [name, valueOf(null, String)]),
];

/** Blocks stay blocks, so that white space around them goes as Jinja says. */
function withMarks(source: string): string {
  return source.replace(GENERATION, (_, left: string, end: string | undefined, right: string) => {
    const mark = end === undefined ? "athanor_open" : "athanor_close";
    return `{%${left} set athanor_x = 1 %}{{ ${mark} }}{% set athanor_x = 1 ${right}%}`;
  });
}

/** Operators by which a template looks at text. */
const LOOKS = new Set(["in", "not in", "==", "!="]);

function note(node: Node, written: Set<string>, examined: Set<string>): void {
  if (node.type === "StringLiteral") written.add(String(node["value"]));
  else if (node.type === "BinaryExpression" && LOOKS.has(String((node["operator"] as Node)["value"]))) {
    look(node["left"], examined);
    look(node["right"], examined);
  } else if (node.type === "CallExpression" && (node["callee"] as Node).type === "MemberExpression") {
    look(node["args"], examined);
  }
}

function look(operand: unknown, examined: Set<string>): void {
  if (Array.isArray(operand)) for (const item of operand) look(item, examined);
  else if ((operand as Node).type === "StringLiteral") examined.add(String((operand as Node)["value"]));
}
