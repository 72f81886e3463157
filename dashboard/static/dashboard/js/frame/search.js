// Search over what the rail lists: type, go with the arrow keys, Enter opens.
function matches(words) {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return [];
  return [...document.querySelectorAll(".rail [data-find]")].filter((link) => name(link).toLowerCase().includes(wanted)).slice(0, 12);
}

const name = (link) => link.querySelector(".t").textContent;

function option(link, at) {
  const item = document.createElement("li");
  item.role = "option";
  item.id = `found-${at}`;
  item.dataset.href = link.href;
  item.append(link.querySelector("svg").cloneNode(true), name(link));
  return item;
}

export function search() {
  const form = document.querySelector("[data-search]");
  if (!form) return;
  const input = form.querySelector("input");
  const list = form.querySelector(".found");
  let chosen = 0;

  const choose = (at) => {
    const items = [...list.querySelectorAll('[role="option"]')];
    chosen = items.length ? (at + items.length) % items.length : 0;
    items.forEach((item, index) => item.setAttribute("aria-selected", String(index === chosen)));
    input.setAttribute("aria-activedescendant", items[chosen]?.id ?? "");
    items[chosen]?.scrollIntoView({ block: "nearest" });
  };
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
  };
  const show = () => {
    if (!input.value.trim()) return close();
    const items = matches(input.value).map(option);
    if (items.length) list.replaceChildren(...items);
    else list.replaceChildren(Object.assign(document.createElement("li"), { className: "none", textContent: "No server or page has this in its name." }));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    choose(0);
  };
  const go = () => {
    const item = list.querySelectorAll('[role="option"]')[chosen];
    if (item) location.assign(item.dataset.href);
  };

  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  input.addEventListener("blur", close);
  list.addEventListener("mousedown", (event) => {
    const item = event.target.closest('[role="option"]');
    if (item) location.assign(item.dataset.href);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Escape") { input.value = ""; input.blur(); }
    else return;
    event.preventDefault();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go();
  });
}
