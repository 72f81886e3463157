// History: the same keys as on the live page, and a zoom that becomes the page's address, so that finer figures come with it.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const link = document.querySelector(`[data-step="${CSS.escape(event.key)}"]`);
  if (!link) return;
  event.preventDefault();
  link.click();
});
window.addEventListener("slotboard:zoom", ({ detail: { from, to } }) => {
  location.assign(`?from=${Math.floor(from)}&to=${Math.ceil(to)}`);
});
