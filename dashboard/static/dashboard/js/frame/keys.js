// Keys that work on every page. Addresses are read from the rail, so they carry the URL prefix.
const GO = { o: "overview", e: "experiments", s: "scenarios", l: "alerts", a: "audit", d: "definitions" };
const GO_WITHIN_MS = 1200;

const typing = (target) => target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
const open = (id) => document.getElementById(id)?.showModal();

const MENUS = "details:is(.who, .drop)[open]";

// A menu that has the focus closes, and what opened it has the focus then.
function closeMenu(event) {
  const menu = event.key === "Escape" && !event.defaultPrevented && document.activeElement?.closest(MENUS);
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
}

export function keys() {
  let wentAt = -Infinity;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]:modal")) return;
    const go = performance.now() - wentAt < GO_WITHIN_MS ? GO[event.key] : undefined;
    wentAt = event.key === "g" ? performance.now() : -Infinity;
    if (go) document.querySelector(`[data-go="${go}"]`)?.click();
    else if (event.key === "?") open("keys");
    else if (event.key === "/") document.querySelector("[data-search] input")?.focus();
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", closeMenu);
  for (const button of document.querySelectorAll("[data-keys-button]")) button.addEventListener("click", () => open("keys"));
  for (const button of document.querySelectorAll("[data-more-button]")) button.addEventListener("click", () => open("more"));
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.who[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
}
