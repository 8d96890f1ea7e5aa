// Who answers for a survey: owner, purpose, review, expiry; what its file does not say is left out.

import { h } from "./dom.js";
import { dayOf } from "./zone.js";

/** The paragraph, hidden where the file says nothing. */
export function registryOf({ registry }) {
  const parts = [
    registry.owner ? ["Owner: ", h("span", { data: { role: "owner" } }, registry.owner)] : null,
    registry.purpose ? [registry.purpose] : null,
    registry.review ? [h("a", { href: registry.review, rel: "noreferrer" }, "privacy review")] : null,
    registry.expires_ms !== null ? [`expires ${dayOf(registry.expires_ms)}`] : null,
  ].filter((part) => part !== null);
  return h("p", { class: "about registry", hidden: parts.length === 0 }, ...parts.flatMap((part, place) => (place ? [" · ", ...part] : part)));
}
