// Theme: follows the system unless pinned. Whoever draws with colours of their own listens to "slotboard:theme".
const ORDER = ["", "light", "dark"];
const WORDS = { "": "follows the system", light: "light, pinned", dark: "dark, pinned" };
const root = document.documentElement;

function keep(key, value) {
  try {
    if (value) localStorage.setItem(key, value);
    else localStorage.removeItem(key);
  } catch { /* storage is off: the choice holds for this page */ }
}

function tell() {
  const words = `Theme: ${WORDS[root.dataset.theme ?? ""]}`;
  for (const button of document.querySelectorAll("[data-theme-button]")) {
    button.title = words;
    if ("themeWords" in button.dataset) button.textContent = words;
    else button.setAttribute("aria-label", words);
  }
}

function announce() {
  window.dispatchEvent(new CustomEvent("slotboard:theme"));
}

function next() {
  const at = ORDER.indexOf(root.dataset.theme ?? "");
  const value = ORDER[(at + 1) % ORDER.length];
  if (value) root.dataset.theme = value;
  else delete root.dataset.theme;
  keep("slotboard.theme", value);
  tell();
  announce();
}

function rail(button) {
  const show = () => button.setAttribute("aria-pressed", String(root.dataset.rail === "slim"));
  button.addEventListener("click", () => {
    if (root.dataset.rail === "slim") delete root.dataset.rail;
    else root.dataset.rail = "slim";
    keep("slotboard.rail", root.dataset.rail ?? "");
    show();
  });
  show();
}

export function theme() {
  for (const button of document.querySelectorAll("[data-theme-button]")) button.addEventListener("click", next);
  for (const button of document.querySelectorAll("[data-rail-button]")) rail(button);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", announce);
  tell();
}
