// Scenarios and the form of a new experiment. All of it works without this file, by a reload.

// Another target or scenario has other fields: the form comes back from the server with what was chosen.
function reloadForFields(form) {
  form.addEventListener("change", (event) => {
    if (!("reload" in event.target.dataset)) return;
    const query = new URLSearchParams(new FormData(form));
    query.delete("csrfmiddlewaretoken");
    if (event.target.dataset.reload === "scenario") forget(query);
    location.assign(`${form.getAttribute("action")}?${query}`);
  });
}

// What one scenario suggests says nothing about another: its arms, its scale, its seed.
function forget(query) {
  for (const name of [...query.keys()]) {
    if (/^[ab]-/.test(name) || ["scale", "seed", "share"].includes(name)) query.delete(name);
  }
}

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    button.textContent = "Selected: copy it";
  }
  setTimeout(() => {
    button.textContent = "Copy";
  }, 2000);
}

// Line numbers beside the text, with a mark where something is to mend.
class Gutter {
  constructor(place) {
    this.place = place;
    this.text = document.getElementById("id_text");
    this.text.addEventListener("input", () => this.draw());
    this.text.addEventListener("scroll", () => this.follow());
    this.text.addEventListener("keydown", (event) => this.indent(event));
    this.draw();
  }

  draw() {
    const faulty = new Set([...document.querySelectorAll("[data-line]")].map((link) => Number(link.dataset.line)));
    const count = this.text.value.split("\n").length;
    const parts = [];
    for (let line = 1; line <= count; line += 1) {
      const told = faulty.has(line) ? document.createElement("b") : document.createTextNode(String(line));
      if (faulty.has(line)) told.textContent = String(line);
      parts.push(told, document.createTextNode("\n"));
    }
    this.place.replaceChildren(...parts);
    this.follow();
  }

  follow() {
    this.place.scrollTop = this.text.scrollTop;
  }

  goTo(line) {
    const lines = this.text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    this.text.focus();
    this.text.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    this.text.scrollTop = Math.max(0, (line - 6) * 18);
  }

  // Tab leaves the text, as the keyboard needs it; two spaces are what YAML is indented by, after Enter as before it.
  indent(event) {
    if (event.key !== "Enter" || event.shiftKey || event.ctrlKey || event.isComposing) return;
    const before = this.text.value.slice(0, this.text.selectionStart);
    const spaces = /(?:^|\n)( *)(- )?[^\n]*$/.exec(before);
    if (!spaces || (!spaces[1] && !spaces[2])) return;
    event.preventDefault();
    this.text.setRangeText(`\n${spaces[1]}${spaces[2] ? "  " : ""}`, this.text.selectionStart, this.text.selectionEnd, "end");
    this.text.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

const form = document.getElementById("new-form");
if (form) reloadForFields(form);
const place = document.querySelector("[data-gutter]");
const gutter = place ? new Gutter(place) : null;
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
  const link = event.target.closest("[data-line]");
  if (link && gutter) {
    event.preventDefault();
    gutter.goTo(Number(link.dataset.line));
  }
});
document.body.addEventListener("htmx:afterSettle", () => gutter?.draw());
