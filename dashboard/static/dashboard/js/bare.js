// Pages without the rail: shared ones, and the kiosk view, which keeps the screen on.
import { theme } from "./frame/theme.js";
import { ages } from "./frame/ages.js";

async function keepAwake() {
  if (document.hidden || !navigator.wakeLock) return;
  try { await navigator.wakeLock.request("screen"); } catch { /* refused: the screen goes off as it would */ }
}

theme();
ages();
if (document.body.classList.contains("kiosk")) {
  keepAwake();
  document.addEventListener("visibilitychange", keepAwake);
}
