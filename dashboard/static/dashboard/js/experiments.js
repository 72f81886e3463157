// A run while it goes. It works without this file, by a reload.

// The head of the page follows the state that the polled part brings.
function follow() {
  const part = document.getElementById("progress");
  if (!part) return;
  const stop = document.getElementById("stop");
  if (stop && part.dataset.state === "stopping") stop.disabled = true;
  const words = document.getElementById("run-state");
  if (words?.lastChild && words.lastChild.textContent !== part.dataset.word) words.lastChild.textContent = part.dataset.word;
}

// When the console stops answering, the part says so instead of looking fresh.
function lost() {
  const line = document.querySelector("#progress .sec-h p");
  if (line && !line.dataset.lost) {
    line.dataset.lost = "yes";
    line.classList.add("is-warn");
    line.textContent = `${line.textContent}. No answer from the console since then; asking again every second.`;
  }
}

document.body.addEventListener("htmx:afterSettle", follow);
document.body.addEventListener("htmx:sendError", lost);
document.body.addEventListener("htmx:responseError", lost);
