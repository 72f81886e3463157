// Runs before the first paint, so it is a plain script in the head: no flash of the other theme.
(() => {
  const root = document.documentElement;
  const read = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
  const theme = read("slotboard.theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  if (read("slotboard.rail") === "slim") root.dataset.rail = "slim";
  root.dataset.js = "on";
})();
