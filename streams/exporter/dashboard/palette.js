// Colours that can be told apart with any colour vision (Okabe and Ito), ordered for contrast with the background.

const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5c00", "#5b6b7a"];
const DARK = ["#56b4e9", "#e69f00", "#21c08f", "#cc79a7", "#f0e442", "#3d8fd6", "#e8763a", "#a9b7c4"];

export function valueColour(position, dark) {
  const colours = dark ? DARK : LIGHT;
  return colours[position % colours.length];
}

/** Rungs differ by lightness alone. */
export function rungColour(rung, rungs, dark) {
  const [low, high] = dark ? [[38, 66, 92], [140, 209, 255]] : [[205, 229, 245], [0, 84, 140]];
  const share = rungs > 1 ? rung / (rungs - 1) : 1;
  const mixed = low.map((start, i) => Math.round(start + (high[i] - start) * share));
  return `rgb(${mixed.join(" ")})`;
}

export function faded(colour, alpha) {
  const hex = Math.round(alpha * 255).toString(16).padStart(2, "0");
  return `${colour}${hex}`;
}

/** The colour of a part between 0 and 1, pale to strong; what is not above 0 has the paper's colour. */
export function shareColour(part, dark) {
  const [low, middle, high] = dark ? [[30, 37, 46], [44, 110, 150], [150, 220, 255]] : [[244, 247, 250], [110, 174, 214], [0, 60, 110]];
  const share = Math.min(1, Math.max(0, part));
  const [from, to, along] = share < 0.5 ? [low, middle, 2 * share] : [middle, high, 2 * share - 1];
  return `rgb(${from.map((start, i) => Math.round(start + (to[i] - start) * along)).join(" ")})`;
}
