// Active time: seconds during which the page is in view and somebody did something in the last half minute.
const IDLE_AFTER = 30_000;
let last = Date.now();
let tick = () => {};

export function listen(everySecond) {
  tick = everySecond;
  for (const kind of ["keydown", "pointerdown", "pointermove", "wheel"]) addEventListener(kind, () => (last = Date.now()), { passive: true });
  setInterval(() => {
    if (document.visibilityState === "visible" && Date.now() - last < IDLE_AFTER) tick();
  }, 1000);
}
