// Polled parts (htmx, marked data-poll) rest while the tab is hidden or the page is paused.
export const paused = { value: false };

export function polls() {
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if ("poll" in event.target.dataset && (document.hidden || paused.value)) event.preventDefault();
  });
}
