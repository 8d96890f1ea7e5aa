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
