// Active time: seconds in which the page was visible and used within the last half minute.
const IDLE_AFTER = 30_000;
let last = performance.now(); // unlike the time of day, it is never set back
let tick = () => {};

export function listen(everySecond) {
  tick = everySecond;
  for (const kind of ["keydown", "pointerdown", "pointermove", "wheel"]) addEventListener(kind, () => (last = performance.now()), { passive: true });
  setInterval(() => {
    if (document.visibilityState === "visible" && performance.now() - last < IDLE_AFTER) tick();
  }, 1000);
}
