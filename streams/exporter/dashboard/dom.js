// Helpers for building elements. Text always becomes text nodes, never markup, whatever a survey file contains.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "data") {
      for (const [key, item] of Object.entries(value)) node.dataset[key] = item;
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** Set text only if it changed, so that nothing flickers and screen readers do not repeat it. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/**
 * Make the children of `parent` the given keyed items, in order, reusing the nodes of keys that stay.
 * `make(item)` returns a node, `update(node, item)` fills it.
 */
export function keyed(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let node = old.get(name);
    if (node === undefined) {
      node = make(item);
      node.dataset.key = name;
    }
    old.delete(name);
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of old.values()) node.remove();
}

export function cssVariable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
