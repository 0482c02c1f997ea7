/**
 * Python: what templates mean by methods and filters in which `@huggingface/jinja` differs from Python: `strip` with characters, Python's
 * white space, `json.dumps`. The template's tree is changed so that it calls these.
 *
 * @example
 * usePython(tree); // message.content.strip("\n") → athanor_strip(message.content, "\n")
 */
import { there } from "./access.ts";
import { contains, equal } from "./equality.ts";
import { arithmetic, isNumber, toFloat, toInteger } from "./numbers.ts";
import {
  argumentsOf,
  booleanValue,
  functionValue,
  integerValue,
  listLike,
  listValue,
  textValue,
  type RuntimeValue,
} from "./runtime.ts";
import { endOf, items, join, length, slice, type IsMark } from "./sequences.ts";
import { SPACES, titled, titleFilter, titleMethod } from "./words.ts";

/** A node of the library's tree, whatever it is. */
export interface Node {
  type: string;
  [member: string]: unknown;
}

const PREFIX = "athanor_";
/** A name that nothing has. */
const MISSING: Node = { type: "Identifier", value: `${PREFIX}missing` };
/** Methods of text that are called as functions of ours. */
const METHODS = new Set(["strip", "lstrip", "rstrip", "capitalize", "title"]);
/** Filters, and the function that each is. */
const FILTERS: Readonly<Record<string, string>> = {
  trim: "strip",
  tojson: "tojson",
  capitalize: "capitalize",
  string: "str",
  title: "titlefilter",
  length: "length",
  count: "length",
  first: "first",
  last: "last",
  join: "join",
  int: "int",
  float: "float",
};
const OPERATORS: Readonly<Record<string, string>> = {
  "+": "add",
  "-": "subtract",
  "*": "multiply",
  "/": "divide",
  "//": "quotient",
  "%": "modulo",
  "**": "power",
  "==": "equal",
  "!=": "unequal",
  in: "within",
  "not in": "without",
};
/** Lists of statements, and those of them that print nothing. */
const BODIES = ["body", "alternate", "defaultBlock"];
const SILENT = new Set(
  "Program If For Break Continue Set Macro Comment CallStatement FilterStatement StringLiteral".split(" "),
);

/** Longest list of `range`: a template is not trusted. */
const MAX_RANGE = 1_000_000;
const SPACE = new Set(SPACES);

/** A template has called `raise_exception`: it refuses the conversation. */
export class Refused extends Error {}

/** Changes a tree in place. `seen` is told of each node before. */
export function usePython(tree: unknown, seen: (node: Node) => void): void {
  if (typeof tree !== "object" || tree === null) return;
  if (tree instanceof Map) {
    for (const [key, value] of tree) {
      usePython(key, seen);
      usePython(value, seen);
    }
    return;
  }
  if (Array.isArray(tree)) {
    for (const item of tree) usePython(item, seen);
    return;
  }
  const node = tree as Node;
  if (typeof node.type === "string") seen(node);
  for (const member of Object.values(node)) usePython(member, seen);
  if (node.type === "CallExpression") method(node);
  else if (node.type === "MemberExpression") member(node);
  else if (node.type === "FilterExpression") filter(node);
  else if (node.type === "IntegerLiteral" && !Number.isSafeInteger(node["value"])) {
    throw new RangeError("it has an integer beyond 2^53");
  } else if (node.type === "BinaryExpression" && (node["operator"] as Node)["value"] === "~") {
    node["left"] = printed(node["left"] as Node);
    node["right"] = printed(node["right"] as Node);
  } else if (node.type === "BinaryExpression") {
    const name = OPERATORS[String((node["operator"] as Node)["value"])];
    if (name !== undefined) become(node, name, [node["left"] as Node, node["right"] as Node]);
  }
  for (const name of BODIES) {
    const body = node[name];
    if (Array.isArray(body)) node[name] = (body as Node[]).map(printed);
  }
}

/** What a statement prints: `None` and `True`, not nothing and `true`. */
function printed(node: Node): Node {
  if (SILENT.has(node.type)) return node;
  return called("str", [node]);
}

function method(node: Node): void {
  const callee = node["callee"] as Node;
  const property = callee["property"] as Node | undefined;
  if (callee.type !== "MemberExpression" || callee["computed"] === true || property?.type !== "Identifier") return;
  const name = String(property["value"]);
  if (!METHODS.has(name)) return;
  node["args"] = [callee["object"], ...(node["args"] as Node[])];
  node["callee"] = { type: "Identifier", value: PREFIX + name };
}

/** What has the member must be there; a text has characters, not units of UTF-16. */
function member(node: Node): void {
  const property = node["property"] as Node;
  const isName = property.type === (node["computed"] === true ? "StringLiteral" : "Identifier");
  const object = node["object"] as Node;
  if (property.type === "SliceExpression") {
    const bounds = ["start", "stop", "step"].map((name) => (property[name] ?? MISSING) as Node);
    become(node, "slice", [object, ...bounds]);
  } else if (isName) node["object"] = called("there", [object, { type: "StringLiteral", value: property["value"] }]);
  else node["object"] = called("items", [object]);
}

/** A filter is an identifier, or a call of one. */
function filter(node: Node): void {
  const use = node["filter"] as Node;
  const identifier = use.type === "CallExpression" ? (use["callee"] as Node) : use;
  const name = FILTERS[String(identifier["value"])];
  if (identifier.type !== "Identifier" || name === undefined) return;
  const args = use.type === "CallExpression" ? (use["args"] as Node[]) : [];
  become(node, name, [node["operand"] as Node, ...args]);
}

/** The node is a call of our function. */
function become(node: Node, name: string, args: readonly Node[]): void {
  for (const member of Object.keys(node)) delete node[member];
  Object.assign(node, { type: "CallExpression", callee: { type: "Identifier", value: PREFIX + name }, args });
}

/** A call of our function. */
function called(name: string, args: readonly Node[]): Node {
  const node: Node = { type: "" };
  become(node, name, args);
  return node;
}

/** Those of the marks of the last conversation: nearly all have the same. */
let lastGlobals: { marks: string; globals: readonly [string, RuntimeValue][] } | undefined;

/** Global names of templates. No clock: what a record's tokens are must not depend on the day. `marks`: what is no character of a text. */
export function globalsOf(marks: string): readonly [string, RuntimeValue][] {
  if (lastGlobals?.marks !== marks) {
    const works = Object.entries(ofTexts((char) => marks.includes(char)));
    lastGlobals = { marks, globals: [...GLOBALS, ...works.map(([name, work]) => own(name, work))] };
  }
  return lastGlobals.globals;
}

type Work = (args: readonly RuntimeValue[]) => RuntimeValue;

function own(name: string, work: Work): [string, RuntimeValue] {
  return [PREFIX + name, functionValue(work)];
}

function ofTexts(isMark: IsMark): { [name: string]: Work } {
  return {
    length: ([value]) => length(value, isMark),
    items: ([value]) => items(value, isMark),
    slice: (args) => slice(args, isMark),
    first: ([value]) => endOf(value, false, isMark),
    last: ([value]) => endOf(value, true, isMark),
    join: (args) => join(args, isMark, textOf),
    equal: ([left, right]) => booleanValue(equal(left!, right!, isMark)),
    unequal: ([left, right]) => booleanValue(!equal(left!, right!, isMark)),
    within: ([item, whole]) => booleanValue(contains(item!, whole!, isMark)),
    without: ([item, whole]) => booleanValue(!contains(item!, whole!, isMark)),
  };
}

const GLOBALS: readonly [string, RuntimeValue][] = [
  ["range", functionValue(range)],
  ["raise_exception", functionValue(([message]) => refuse(message === undefined ? "" : textOf(message)))],
  own("strip", (args) => strip(args, true, true)),
  own("lstrip", (args) => strip(args, true, false)),
  own("rstrip", (args) => strip(args, false, true)),
  own("capitalize", ([text]) => textValue(titled(textOf(text!)))),
  own("title", ([text]) => textValue(titleMethod(textOf(text!)))),
  own("titlefilter", ([text]) => textValue(titleFilter(textOf(text!)))),
  own("str", ([value]) => textValue(textOf(value!))),
  own("int", toInteger),
  own("float", toFloat),
  own("add", ([left, right]) => add(left!, right!)),
  ...["-", "*", "/", "//", "%", "**"].map((operator) =>
    own(OPERATORS[operator]!, ([left, right]) => arithmetic(operator, left!, right!)),
  ),
  own("there", ([value, name]) => there(value, name)),
  own("tojson", tojson),
];

function refuse(message: string): never {
  throw new Refused(message);
}

/** `str` of a value, as a template prints it. */
function textOf(value: RuntimeValue): string {
  const { type, value: held } = value;
  if (type === "StringValue") return String(held);
  return type === "UndefinedValue" ? "" : repr(value);
}

function repr(value: RuntimeValue): string {
  const { type, value: held } = value;
  switch (type) {
    case "StringValue":
      return quote(String(held));
    case "NullValue":
      return "None";
    case "BooleanValue":
      return held === true ? "True" : "False";
    case "FloatValue":
      return float(held as number)
        .replace("Infinity", "inf")
        .replace("NaN", "nan");
    case "ArrayValue":
      return `[${(held as readonly RuntimeValue[]).map(repr).join(", ")}]`;
    case "ObjectValue":
      return `{${[...(held as ReadonlyMap<string, RuntimeValue>)].map(([key, member]) => `${quote(key)}: ${repr(member)}`).join(", ")}}`;
    default:
      return String(value);
  }
}

const ESCAPES: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** A text as Python writes it: in double quotes only if it has single ones and no double ones. */
function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inside = text.replace(/[\\\n\r\t]/g, (char) => ESCAPES[char]!).replace(/[\p{C}\p{Z}]/gu, escaped);
  return mark + (mark === "'" ? inside.replaceAll("'", "\\'") : inside) + mark;
}

/** Characters that Python does not print as they are. */
function escaped(char: string): string {
  if (char === " " || /[\ufdd0-\ufdef]/.test(char)) return char;
  const code = char.codePointAt(0)!;
  const [letter, digits]: [string, number] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
}

/** Python adds like to like. */
function add(left: RuntimeValue, right: RuntimeValue): RuntimeValue {
  if (left.type === "StringValue" && right.type === "StringValue")
    return textValue(String(left.value) + String(right.value));
  if (Array.isArray(left.value) && Array.isArray(right.value)) {
    if (left.type !== right.type) throw new TypeError("it adds a tuple and a list");
    return listLike(left, [...left.value, ...right.value] as RuntimeValue[]);
  }
  if (!isNumber(left) || !isNumber(right)) {
    throw new Refused(`it adds ${named(left.type)} and ${named(right.type)}`);
  }
  return arithmetic("+", left, right);
}

function named(type: string): string {
  return { StringValue: "text", NullValue: "None", UndefinedValue: "what is not there" }[type] ?? type;
}

function strip([value, characters]: readonly RuntimeValue[], left: boolean, right: boolean): RuntimeValue {
  const text = textOf(value!);
  const away = characters?.type === "StringValue" ? new Set(String(characters.value)) : SPACE;
  const points = Array.from(text);
  let from = 0;
  let to = points.length;
  while (left && from < to && away.has(points[from]!)) from++;
  while (right && to > from && away.has(points[to - 1]!)) to--;
  return textValue(points.slice(from, to).join(""));
}

function range(args: readonly RuntimeValue[]): RuntimeValue {
  if (args.some(({ type }) => type !== "IntegerValue" && type !== "BooleanValue"))
    throw new TypeError("range of no integer");
  const numbers = args.map((arg) => Number(arg.value));
  const [from, to, step] = numbers.length < 2 ? [0, numbers[0] ?? 0, 1] : [numbers[0]!, numbers[1]!, numbers[2] ?? 1];
  const length = Math.max(0, Math.ceil((to - from) / step));
  if (!(length <= MAX_RANGE)) throw new RangeError(`range of more than ${MAX_RANGE}`);
  return listValue(Array.from({ length }, (_, i) => integerValue(from + i * step)));
}

interface Style {
  indent: number | undefined;
  ascii: boolean;
  item: string;
  key: string;
  sorted: boolean;
}

/** `json.dumps` with the arguments that templates can give it. */
function tojson([value, ...args]: readonly RuntimeValue[]): RuntimeValue {
  const { named: options } = argumentsOf(args);
  const held = (name: string): unknown => {
    const option = options.get(name);
    return option === undefined ? undefined : (option.value ?? undefined);
  };
  const indent = held("indent") as number | undefined;
  const separators = held("separators") as readonly RuntimeValue[] | undefined;
  const [item, key] = separators?.map(textOf) ?? [indent === undefined ? ", " : ",", ": "];
  const style: Style = {
    indent,
    ascii: held("ensure_ascii") === true,
    item: item!,
    key: key!,
    sorted: held("sort_keys") === true,
  };
  return textValue(dump(value!, style, 0));
}

function dump(value: RuntimeValue, style: Style, depth: number): string {
  const { type, value: held } = value;
  switch (type) {
    case "StringValue":
      return quoted(String(held), style);
    case "IntegerValue":
    case "BooleanValue":
      return String(held);
    case "FloatValue":
      return float(held as number);
    case "NullValue":
      return "null";
    case "ArrayValue":
    case "TupleValue": {
      const items = (held as readonly RuntimeValue[]).map((item) => dump(item, style, depth + 1));
      return enclosed("[", items, "]", style, depth);
    }
    case "ObjectValue": {
      const members = [...(held as ReadonlyMap<string, RuntimeValue>)];
      if (style.sorted) members.sort(([a], [b]) => byCodePoints(a, b));
      const lines = members.map(
        ([name, member]) => `${quoted(name, style)}${style.key}${dump(member, style, depth + 1)}`,
      );
      return enclosed("{", lines, "}", style, depth);
    }
    default:
      throw new TypeError(`tojson of ${type}`);
  }
}

function enclosed(open: string, items: readonly string[], close: string, style: Style, depth: number): string {
  const { indent, item } = style;
  if (indent === undefined || items.length === 0) return open + items.join(item) + close;
  const line = `\n${" ".repeat(indent * (depth + 1))}`;
  return `${open}${line}${items.join(item + line)}\n${" ".repeat(indent * depth)}${close}`;
}

function quoted(text: string, { ascii }: Style): string {
  const json = JSON.stringify(text);
  if (!ascii) return json;
  return json.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** `repr` of a float. */
function float(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (Object.is(value, -0)) return "-0.0";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e16 || size < 1e-4)) {
    return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  }
  const plain = String(value);
  return plain.includes(".") ? plain : `${plain}.0`;
}

function byCodePoints(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
