// Bundles the page into ../assets: one script, one style sheet, and the licences of what is inside.
import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const assets = new URL("../assets/", import.meta.url).pathname;

await build({
  entryPoints: ["src/main.ts", "src/page.css"],
  entryNames: "page",
  outdir: assets,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "info",
});

// A script that holds the text "</script" would end its own element.
const script = await readFile(`${assets}page.js`, "utf8");
if (/<\/script|<!--/i.test(script)) throw new Error("the script cannot stand inside a page");

const parts = ["@dagrejs/dagre", "@dagrejs/graphlib"];
const notices = await Promise.all(
  parts.map(async (name) => {
    const { version, license } = JSON.parse(await readFile(`node_modules/${name}/package.json`, "utf8"));
    const text = await readFile(`node_modules/${name}/LICENSE`, "utf8");
    return `${name} ${version} (${license})\n\n${text.trim()}\n`;
  }),
);
const head = "page.js contains, beside Monograph's own code, the libraries that lay graphs out.\n";
await writeFile(`${assets}LICENSES.txt`, [head, ...notices].join("\n----\n\n"));
