/**
 * Loops: `{% continue %}` and `{% break %}` as Jinja has them. In `@huggingface/jinja` both forget what the turn of the loop has printed
 * before. So what follows a condition with a `continue` becomes its other branch, and a `break` behind something printed is refused.
 *
 * @example
 * // {% if a %}x{% continue %}{% endif %}y  →  {% if a %}x{% else %}y{% endif %}
 * mendLoops(tree);
 */
import type { Node } from "./python.ts";

/** Changes a tree in place; behind `usePython`: statements come to stand in several places. */
export function mendLoops(tree: unknown): void {
  if (typeof tree !== "object" || tree === null) return;
  if (Array.isArray(tree)) {
    for (const item of tree) mendLoops(item);
    return;
  }
  const node = tree as Node;
  for (const name of ["body", "alternate", "defaultBlock"]) mendLoops(node[name]);
  if (node.type === "For") {
    const body = node["body"] as readonly Node[];
    refuseBreak(body, false);
    if (leaves(body, "Continue")) node["body"] = without(body);
  }
}

/** The statements without `continue`. */
function without(statements: readonly Node[]): Node[] {
  const at = statements.findIndex((node) => node.type === "Continue" || leaves([node], "Continue"));
  if (at < 0) return [...statements];
  const before = statements.slice(0, at);
  const node = statements[at]!;
  if (node.type === "Continue") return before;
  const rest = statements.slice(at + 1);
  const branch = (name: string): Node[] => without([...(node[name] as readonly Node[]), ...rest]);
  return [...before, { ...node, body: branch("body"), alternate: branch("alternate") }];
}

/** Is a `continue` or `break` of this loop among them? */
function leaves(statements: readonly Node[], type: "Continue" | "Break"): boolean {
  return statements.some(
    (node) =>
      node.type === type ||
      (node.type === "If" && (leaves(node["body"] as Node[], type) || leaves(node["alternate"] as Node[], type))),
  );
}

const SILENT = new Set(["Set", "Macro", "Comment", "Continue", "Break"]);

/** Tells whether the statements may have printed something. */
function refuseBreak(statements: readonly Node[], before: boolean): boolean {
  let printed = before;
  for (const node of statements) {
    if (node.type === "Break" && printed) throw new SyntaxError("a {% break %} behind something printed");
    if (node.type === "If") {
      const inBody = refuseBreak(node["body"] as Node[], printed);
      const inOther = refuseBreak(node["alternate"] as Node[], printed);
      printed = inBody || inOther;
    } else if (!SILENT.has(node.type)) printed = true;
  }
  return printed;
}
