// node clients/web/test/run.js [VECTORS]: the vectors in Node, with ledgers in files.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { FileStore } from "../node.js";
import { run } from "./vectors.js";

const path = process.argv[2] ?? new URL("../../../docs/spec/vectors.json", import.meta.url);
const folder = await mkdtemp(join(tmpdir(), "thaw-web-"));
try {
  let ledgers = 0;
  const { passed, failed } = await run(JSON.parse(await readFile(path, "utf-8")), async () => new FileStore(join(folder, String((ledgers += 1)))));
  for (const text of failed) console.log(text);
  console.log(`${passed} passed, ${failed.length} failed`);
  process.exitCode = failed.length === 0 && passed > 0 ? 0 : 1;
} finally {
  await rm(folder, { recursive: true });
}
