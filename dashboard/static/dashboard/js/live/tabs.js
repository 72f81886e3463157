// On a phone, lanes and fairness stand behind tabs; on a wide screen all of them show.
export function tabs(page) {
  const bar = page.querySelector("[data-tabs]");
  if (!bar) return;
  const sections = [...page.querySelectorAll("[data-tab-of]")];
  const choose = (name) => {
    for (const section of sections) section.classList.toggle("chosen", section.dataset.tabOf === name);
    for (const button of bar.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.value === name));
  };
  bar.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(button.getAttribute("aria-pressed") === "true" ? "" : button.value);
  });
  choose(sections.some((section) => `#${section.id}` === location.hash) ? location.hash.slice(1) : "lanes");
}
