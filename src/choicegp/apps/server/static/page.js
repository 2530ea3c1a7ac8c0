// The pages work without this file. It counts ticks, blocks double clicks, and looks for news.
"use strict";

function countTicks(form) {
  const button = form.querySelector("button.primary");
  const update = () => {
    const n = form.querySelectorAll("input[type=checkbox]:checked").length;
    button.textContent = n ? form.dataset.count.replace("#", n) : form.dataset.keep;
  };
  form.addEventListener("change", update);
  update();
}

function release(form) {
  delete form.dataset.sent;
  form.classList.remove("sending");
}

function sendOnce(form) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "yes";
    form.classList.add("sending");
    // A request that never arrives must not block the form for good; what is sent twice counts once.
    setTimeout(() => release(form), 8000);
  });
}

// A page that the back button brings out of memory may be old: it is fetched again.
window.addEventListener("pageshow", (event) => {
  for (const form of document.forms) release(form);
  if (event.persisted) location.reload();
});

async function waitFor(address) {
  for (let pause = 700; ; pause = Math.min(pause * 1.3, 5000)) {
    await new Promise((done) => setTimeout(done, pause));
    try {
      const reply = await fetch(address, { cache: "no-store" });
      if (reply.ok && (await reply.json()).ready) {
        location.reload();
        return;
      }
    } catch {
      // The server is away for a moment; the next look will tell.
    }
  }
}

async function keepFresh(part) {
  for (;;) {
    await new Promise((done) => setTimeout(done, 3000));
    if (document.hidden || part.contains(document.activeElement)) continue;
    try {
      const reply = await fetch(part.dataset.live, { cache: "no-store" });
      if (!reply.ok) continue;
      const fresh = new DOMParser().parseFromString(await reply.text(), "text/html").getElementById(part.id);
      if (fresh && fresh.innerHTML !== part.innerHTML) part.replaceChildren(...fresh.childNodes);
    } catch {
      // As above.
    }
  }
}

document.querySelectorAll("#answer").forEach(countTicks);
document.querySelectorAll("form[method=post]").forEach(sendOnce);
document.querySelectorAll("[data-wait]").forEach((part) => waitFor(part.dataset.wait));
document.querySelectorAll("[data-live]").forEach(keepFresh);
document.querySelectorAll("input[data-select]").forEach((field) => field.addEventListener("focus", () => field.select()));
