// Names that are too long for their place, cut so that they still differ from each other.

const ELLIPSIS = "…";

/** Cut a name in its middle: both ends tell more than the beginning alone. */
export function cut(name, most) {
  const signs = [...name];
  if (signs.length <= most) return name;
  const end = Math.floor((most - 1) / 2);
  return signs.slice(0, most - 1 - end).join("") + ELLIPSIS + signs.slice(signs.length - end).join("");
}

/** How many characters all names begin with, cut back to the start of a word. */
function sharedLength(names) {
  const [first, ...others] = names.map((name) => [...name]);
  let length = 0;
  while (length < first.length && others.every((other) => other[length] === first[length])) length += 1;
  while (length > 0 && !/[\s/_.:-]/.test(first[length - 1])) length -= 1;
  return length;
}

/**
 * Names of at most `most` characters, all different if the names are. What they all begin with is left out where some
 * name is too long: of "value number 100" and "value number 200" the numbers are shown.
 */
export function shortNames(names, most) {
  if (names.every((name) => [...name].length <= most)) return [...names];
  const shared = names.length > 1 ? sharedLength(names) : 0;
  const rest = names.map((name) => (shared > 1 ? ELLIPSIS + [...name].slice(shared).join("") : name));
  const short = rest.map((name) => cut(name, most));
  const seen = new Map();
  for (const name of short) seen.set(name, (seen.get(name) ?? 0) + 1);
  return short.map((name, index) => {
    if (seen.get(name) === 1) return name;
    const number = `#${index + 1}`;
    return `${cut(name, Math.max(2, most - number.length))}${number}`;
  });
}

/**
 * The short name of each long one, cut in the middle where that keeps them apart. A name that occurs twice, as of a key
 * with a share and a mean, stays one.
 */
export function shortByName(names, most) {
  const different = [...new Set(names)];
  const middle = different.map((name) => cut(name, most));
  const short = new Set(middle).size === different.length ? middle : shortNames(different, most);
  return new Map(different.map((name, index) => [name, short[index]]));
}
