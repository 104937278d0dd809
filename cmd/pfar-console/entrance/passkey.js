(() => {
"use strict";
const body = document.body, told = document.getElementById("told");
const tell = (words) => { told.textContent = words; told.hidden = false; };
const put = (form, name, value) => {
  form.querySelector(`input[type=hidden][name="${name}"]`)?.remove();
  const field = document.createElement("input");
  field.type = "hidden"; field.name = name; field.value = value;
  form.append(field);
};
const sign = async (options) => JSON.stringify(await navigator.credentials.get({
  publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options),
}));
const make = async (options) => JSON.stringify(await navigator.credentials.create({
  publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options),
}));
const prove = async (form, by) => {
  if (form.dataset.options) {
    const options = JSON.parse(form.dataset.options);
    put(form, "proof", await (form.dataset.makes ? make : sign)(options));
    return;
  }
  const at = form.getAttribute("action");
  const answer = await fetch(body.dataset.home + "sign/" + at.slice(body.dataset.home.length), {
    method: "POST", body: new URLSearchParams(new FormData(form, by)), redirect: "error",
  });
  if (!answer.ok) throw new Error(await answer.text());
  const { nonce, options } = await answer.json();
  if (!options) return;
  const proof = await sign(options);
  put(form, "nonce", nonce);
  put(form, "proof", proof);
};
// The cookie of a session belongs to its path alone. So a page of the session leaves that path to this site's pages, and
// the page of a link to a call goes there, once.
const remembered = (act) => { try { return act(localStorage); } catch { return null; } };
const link = document.querySelector("form[data-call]");
if (body.dataset.home) remembered((all) => all.setItem("home", body.dataset.home));
if (link) {
  const home = remembered((all) => all.getItem("home")) || "";
  remembered((all) => all.removeItem("home"));
  if (/^\/c\/[A-Z2-7]+\/$/.test(home)) location.replace(home + "call/" + link.dataset.call);
}
let busy = false;
document.addEventListener("submit", async (event) => {
  const form = event.target, by = event.submitter;
  if (form.dataset.leave) return;
  event.preventDefault();
  if (busy) return;
  busy = true;
  told.hidden = true;
  try {
    if (!window.PublicKeyCredential || !PublicKeyCredential.parseRequestOptionsFromJSON)
      throw new Error("this browser is too old for passkeys on this page: update it");
    await prove(form, by);
  } catch (error) {
    const words = {
      NotAllowedError:
        "the browser got no passkey: you cancelled, it took too long, or this device has none for this page",
      InvalidStateError: "this device already has a passkey of this operator: use another device",
    }[error.name] || error.message.replace(/^nothing was done: /, "");
    tell("Nothing was done: " + words);
    return;
  } finally {
    busy = false;
  }
  if (by && by.name) put(form, by.name, by.value);
  form.submit();
});
})();
