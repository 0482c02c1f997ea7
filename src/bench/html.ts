/**
 * HTML: the report as one self-contained static file: inline SVG bars, no script, no external resource, so that it can
 * be mailed and opened anywhere. A chart library does not fit: it would need a script in the file for six bars.
 */
import { machineLines } from "./machine.ts";
import type { Report, Row, Table } from "./report.ts";
import { figure, storyLines, tableCells, tableTitle } from "./table.ts";

export function escapeHtml(text: string): string {
  const names: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (character) => names[character]!);
}

const STYLE = `body{font:14px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;font-size:12px;display:block;overflow-x:auto}th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}
th:first-child,td:first-child{text-align:left}h2{margin-top:2rem}.bars{display:flex;flex-wrap:wrap;gap:2rem}svg text{font:12px system-ui,sans-serif;fill:#222}
pre{white-space:pre-wrap;color:#555}`;

export function reportHtml(report: Report): string {
  const { data } = report;
  const facts = [
    `${data.source}: ${data.samples} samples x ${data.width}, ${data.shards} shards`,
    `file system ${data.fileSystem.type} at ${data.fileSystem.mount} (${data.fileSystem.device})`,
    `cache ${report.cache}`,
    ...machineLines(report.machine),
    `client ${report.client}, ${report.passes} interleaved passes, medians`,
    ...report.notes,
  ];
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>athanor bench train</title><style>${STYLE}</style></head>
<body><h1>athanor bench train</h1>
<pre>${escapeHtml(facts.join("\n"))}</pre>
${report.tables.map((each) => section(each, report.ranks)).join("\n")}
<p>Epoch minutes: m measured over a whole epoch, x extrapolated from the rate. A bar's whisker spans the least and the greatest pass.</p>
</body></html>
`;
}

function section(each: Table, ranks: number): string {
  const [head, ...rows] = tableCells(each.rows);
  const line = (cells: readonly string[], tag: "th" | "td") =>
    `<tr>${cells.map((cell) => `<${tag}>${escapeHtml(cell)}</${tag}>`).join("")}</tr>`;
  const charts = [bars("samples/s", each.rows, (row) => row.samplesPerSecond)];
  if (each.rows.some((row) => row.au !== undefined))
    charts.push(bars("accelerator utilisation, %", each.rows, (row) => row.au, 100));
  return `<h2>${escapeHtml(tableTitle(each, ranks))}</h2>
<div class="bars">${charts.join("\n")}</div>
<table>${line(head!, "th")}${rows.map((row) => line(row, "td")).join("")}</table>
<p>${escapeHtml(storyLines(each).join(" "))}</p>`;
}

const BAR_HEIGHT = 24;
const LABEL = 130;
const LENGTH = 300;

/** Horizontal bars from 0; `top`: the value of a full bar, else the greatest one. */
function bars(title: string, rows: readonly Row[], of: (row: Row) => Row["au"], top?: number): string {
  const full = top ?? Math.max(...rows.map((row) => of(row)?.max ?? 0));
  const x = (value: number) => LABEL + (full > 0 ? (value / full) * LENGTH : 0);
  const parts = rows.map((row, i) => {
    const value = of(row);
    const y = i * BAR_HEIGHT;
    const label = `<text x="${LABEL - 8}" y="${y + 16}" text-anchor="end">${escapeHtml(row.name)}</text>`;
    if (value === undefined) return label;
    const fill = row.name.startsWith("athanor") ? "#c2410c" : "#64748b";
    return `${label}<rect x="${LABEL}" y="${y + 4}" width="${(x(value.median) - LABEL).toFixed(1)}" height="${BAR_HEIGHT - 8}" fill="${fill}"/>
<line x1="${x(value.min).toFixed(1)}" x2="${x(value.max).toFixed(1)}" y1="${y + 12}" y2="${y + 12}" stroke="#222"/>
<text x="${(x(value.max) + 6).toFixed(1)}" y="${y + 16}">${figure(value.median)}</text>`;
  });
  const height = rows.length * BAR_HEIGHT;
  return `<figure><figcaption>${escapeHtml(title)}</figcaption><svg role="img" aria-label="${escapeHtml(title)}" width="${LABEL + LENGTH + 70}" height="${height}">${parts.join("\n")}</svg></figure>`;
}
