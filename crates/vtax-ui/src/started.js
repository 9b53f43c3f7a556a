"use strict";
const progress = document.getElementById("progress");
const SECONDS = 3;

// The button keeps the keyboard focus, because it is not replaced.
async function update() {
    try {
        const reply = await fetch(location.href);
        const page = new DOMParser().parseFromString(await reply.text(), "text/html");
        const now = page.getElementById("progress");
        if (now === null) return location.reload();
        if (now.innerHTML !== progress.innerHTML) progress.innerHTML = now.innerHTML;
    } catch {
        document.getElementById("state").textContent = "vtax ui is not responding. This page shows its last update.";
    }
    setTimeout(update, SECONDS * 1000);
}
setTimeout(update, SECONDS * 1000);
