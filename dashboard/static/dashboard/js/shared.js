// The secret of a share link stands behind the #, which browsers never send: it is traded for a cookie here, and taken off the address.
const form = document.querySelector("[data-open-shared]");
const secret = decodeURIComponent(location.hash.slice(1));

if (secret && !("tried" in form.dataset && sessionStorage.getItem("slotboard.tried") === secret)) {
  sessionStorage.setItem("slotboard.tried", secret);
  history.replaceState(null, "", location.pathname);
  form.elements.secret.value = secret;
  form.submit();
}
