// The policies page: the reason and the duration go into the exact request as they are typed; the server's policy is watched.
import { Feed } from "./live/feed.js";
import { Clock } from "./live/state.js";
import { Status } from "./live/status.js";
import { Strips } from "./live/strips.js";

const script = document.querySelector("script[data-feed]");
const form = document.querySelector("[data-policy-form]");
const first = JSON.parse(document.getElementById("state").textContent);
const GUARDED_S = 3600; // the deadline of a guarded change that names none
const STAYS = "It stays until somebody changes it.";
const GOES_BACK = "Then the server itself goes back to what is in force now, even if this console is gone by then.";

function words() {
  const request = form.querySelector("[data-request]");
  if (!request) return;
  const [line, ...rest] = request.textContent.split("\n");
  const body = JSON.parse(rest.join("\n"));
  const ttl = form.querySelector('[name="ttl"]:checked');
  const minutes = Number(form.querySelector('[name="minutes"]')?.value) || 0;
  const guarded = form.querySelector('.gr [type="checkbox"]:checked') && !form.querySelector('[name="guard.without_ttl"]').checked;
  const seconds = minutes > 0 ? minutes * 60 : Number(ttl?.value) || (guarded ? GUARDED_S : 0);
  delete body.ttl_s;
  delete body.reason;
  if (seconds) body.ttl_s = seconds;
  body.reason = form.querySelector('[name="reason"]').value;
  request.textContent = `${line}\n${JSON.stringify(body, null, 1)}`;
  const chosen = minutes > 0 ? `${minutes} min` : ttl?.value ? ttl.parentElement.textContent.trim() : `${GUARDED_S / 60} min`;
  form.querySelector("[data-ttl-hint]").textContent = seconds ? GOES_BACK : STAYS;
  form.querySelector("[data-apply]").textContent = seconds ? `Apply for ${chosen}` : "Apply until changed";
}

form.addEventListener("input", (event) => {
  if (event.target.closest("#review")) words();
});
// Choosing a value marks it at once; what it means is asked from the server.
form.addEventListener("change", (event) => {
  const option = event.target.closest(".opt");
  if (!option) return;
  for (const other of option.parentElement.querySelectorAll(".opt")) {
    other.classList.remove("sel");
    other.querySelector(".tag.new")?.remove();
  }
  if (option.querySelector(".tag")) return;
  option.classList.add("sel");
  option.querySelector(".on").append(" ", Object.assign(document.createElement("span"), { className: "tag new", textContent: "new" }));
});
function look() {
  const review = form.querySelector("#review");
  if (review.getBoundingClientRect().top > innerHeight * 0.7) review.scrollIntoView({ block: "center" });
}

document.body.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.id !== "review" && event.target.id !== "review") return;
  words();
  look();
});
document.body.addEventListener("htmx:responseError", () => {
  form.querySelector("#review").textContent = "The console did not answer; load the page again.";
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.querySelector("[data-apply]")?.click();
  else if (event.key === "Enter" && event.target.matches("input")) event.preventDefault(); // no half-made change by accident
});
words();
if (form.querySelector("#review .note.error")) look();

if (first) {
  const clock = new Clock();
  const strips = new Strips();
  const status = new Status(document.querySelector("[data-live]"), null);
  const version = form.querySelector('[name="version"]').value;
  const told = (state) => {
    clock.see(state.t);
    status.hear();
    strips.draw(state);
    strips.tick(clock.now());
    document.querySelector("[data-moved]").hidden = !version || !state.policy || state.policy.version <= Number(version);
  };
  clock.see(first.t);
  strips.draw(first);
  strips.tick(clock.now());
  new Feed(script.dataset.feed, { told, status: (kind, text) => status.tell(kind, text) }).open();
  setInterval(() => { status.tick(); strips.tick(clock.now()); }, 500);
}
