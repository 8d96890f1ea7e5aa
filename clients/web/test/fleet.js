// node clients/web/test/fleet.js: many people who answer one survey through a gateway, drawn by this client from a seed.
// Reads one JSON object on stdin: gateway, survey (id), devices, seed, window_ms, values; person i has the value i modulo their
// number and stops at the rung i modulo the rungs. Prints the number of reports that were confirmed.

import { createHash } from "node:crypto";

import { little } from "../bytes.js";
import { frameOf, namesOf } from "../frames.js";
import { Gateway } from "../gateway.js";

const AT_ONCE = 2_000;

/** Words that anybody who knows the seed can draw again: for tests alone. */
function seeded(seed) {
  let counter = 0;
  let left = [];
  return () => {
    if (left.length === 0) {
      const block = createHash("sha512").update(`${seed} ${(counter += 1)}`).digest();
      left = Array.from({ length: 8 }, (_, at) => block.readBigUInt64LE(8 * at));
    }
    return left.pop();
  };
}

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const { gateway: url, survey: id, devices, seed, window_ms: windowMs, values } = JSON.parse(Buffer.concat(chunks).toString());
const gateway = new Gateway(url);
const survey = await gateway.survey(id);
let frames = [];
for (let person = 0; person < devices; person += 1) {
  const word = seeded(`${seed} ${id} ${person}`);
  const { answers, group } = survey.mechanism.draw(values[person % values.length], survey.client.answer_width, word);
  const { token, keys } = await namesOf(little(word(), 32), survey, windowMs);
  const rung = person % survey.rungs;
  frames.push(frameOf(survey, { windowMs, rung, token, answer: answers[rung], group, key: keys[rung] }));
  if (frames.length === AT_ONCE || person === devices - 1) {
    await gateway.send(frames);
    frames = [];
  }
}
console.log(JSON.stringify({ reports: devices }));
