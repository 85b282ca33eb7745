// What a group asks for: the levels of a scale, a slider, or ranks; in all cells, or in the disputed ones of an adjudication.
const MOST_BUTTONS = 9;

export const isSlider = (group) => group.levels.length > MOST_BUTTONS;
export const isRanking = (group) => group.mode === "ranking";
export const asks = (group, candidate, dimension) => !group.given || group.given[candidate]?.[dimension] !== undefined;

// The level nearest to a number.
export const nearest = (group, value) => group.levels.reduce((best, level) => (Math.abs(level - value) < Math.abs(best - value) ? level : best));

// The level that a number of steps away is, within the scale.
export function moved(group, value, steps) {
  const place = group.levels.indexOf(value) + steps;
  return group.levels[Math.min(group.levels.length - 1, Math.max(0, place))];
}

// The level that the key of a number gives; undefined where it is no level.
export const ofKey = (group, number) => (group.levels.includes(number) ? number : undefined);

// Whether a key of scores is of use in a group; all other keys are.
export function uses(group, action) {
  if (["lower", "higher"].includes(action)) return isSlider(group);
  return !action.startsWith("score-") || ofKey(group, Number(action.slice("score-".length))) !== undefined;
}

export function words(session, group, level) {
  if (!isRanking(group)) return session.rubric.words[String(level)] ?? "";
  return level === 1 ? "best" : level === group.levels.length ? "worst" : "";
}

export const criterion = (session, group, dimension, level) => (isRanking(group) ? "" : session.rubric.criteria[dimension]?.[String(level)] ?? "");

// The levels that stand at a slider: both ends, and those with a name or a criterion.
export const marked = (session, group, dimension) => group.levels.filter((level, i) => i === 0 || i === group.levels.length - 1 || words(session, group, level) || criterion(session, group, dimension, level));
