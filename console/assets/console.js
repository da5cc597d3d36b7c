// Keeps a page live. Without this script every page still works, by links and forms.

// What a person has set, and the server does not know.
const keeps = (element, name) => name === "open" && element.tagName === "DETAILS";

function attributes(old, next) {
  for (const { name, value } of [...next.attributes]) {
    if (old.getAttribute(name) !== value && !keeps(old, name)) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !keeps(old, name)) old.removeAttribute(name);
  }
}

const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");

// A text under a selection waits, because a change would drop the selection. The range is read once for each update: to
// ask the selection for each node forces a layout each time.
let selected = null;
let fresh = 0;

function update(old, next) {
  const selection = getSelection();
  selected = selection.rangeCount > 0 && !selection.isCollapsed ? selection.getRangeAt(0) : null;
  fresh = 0;
  morph(old, next);
  const pill = document.getElementById("pill"), checked = count();
  pill.hidden = fresh === 0 || checked > 0; // to show the new rows would drop what is checked
  pill.firstElementChild.textContent = fresh + " new: show";
}

// morph makes old look like next, and keeps the nodes of old wherever name and id agree. So the focus, the selection, open
// details and the texts in fields stay. A form with the focus stays as it is.
function morph(old, next) {
  if (old.isEqualNode(next)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== next.nodeValue && !selected?.intersectsNode(old)) old.nodeValue = next.nodeValue;
    return;
  }
  if (old.nodeName === "FORM" && old.contains(document.activeElement)) return;
  attributes(old, next);
  if (old.hasAttribute("data-rows")) rows(old, next);
  else children(old, next);
}

function children(old, next) {
  const ids = new Set([...next.children].map((element) => element.id).filter(Boolean));
  const known = new Map([...old.children].filter((element) => element.id).map((element) => [element.id, element]));
  let at = old.firstChild;
  for (const node of [...next.childNodes]) {
    while (at && at.id && !ids.has(at.id)) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    const same = node.id ? known.get(node.id) : at && alike(at, node) ? at : null;
    if (node.id) known.delete(node.id);
    if (!same || !alike(same, node)) {
      old.insertBefore(document.importNode(node, true), at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    morph(same, node);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// rows updates the rows of a list that are shown. It adds, removes and moves none: the rows that have left fade, and the
// pill counts the new ones.
function rows(old, next) {
  const of = (list) => (list.tBodies ? [...list.tBodies].flatMap((body) => [...body.rows]) : [...list.children]);
  const known = new Map(of(old).map((row) => [row.id, row]));
  for (const row of of(next)) {
    const same = known.get(row.id);
    if (same) {
      same.classList.remove("gone");
      morph(same, row);
      known.delete(row.id);
    } else fresh++;
  }
  for (const gone of known.values()) gone.classList.add("gone");
}

// live connects a page to its stream, which has the same URL. A hidden page releases its connection: browsers allow few.
function live(content, status) {
  let source = null, timer = 0, heard = 0, paused = false, away = "";
  const clock = () => new Date().toLocaleTimeString();
  const text = document.createElement("span");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Pause";
  status.append(text, " ", button);
  const say = (now) => { if (text.textContent !== now) text.textContent = now; };
  const stop = () => { clearTimeout(timer); if (source) source.close(); source = null; };
  const alive = () => { heard = Date.now(); away = ""; say("live"); };
  const later = () => {
    stop();
    if (!away) away = clock();
    say("server away since " + away);
    timer = setTimeout(start, 1000 + Math.random() * 1000);
  };
  function start() {
    stop();
    if (document.hidden || paused) return;
    heard = Date.now();
    source = new EventSource(location.href);
    source.onopen = alive;
    source.onerror = later; // also after another status than 200, when EventSource gives up
    source.addEventListener("ping", alive);
    source.addEventListener("failed", (event) => { heard = Date.now(); say("not live: " + event.data); });
    source.addEventListener("end", (event) => { stop(); say("not live: " + event.data); });
    source.addEventListener("main", (event) => {
      alive();
      const next = content.cloneNode(false);
      next.append(...new DOMParser().parseFromString("<body>" + event.data, "text/html").body.childNodes); // the tag keeps the space at the start
      update(content, next);
    });
  }
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume" : "Pause";
    if (paused) {
      stop();
      say("paused at " + clock());
    } else start();
  });
  setInterval(() => { if (source && Date.now() - heard > 35000) later(); }, 5000);
  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else start(); });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) start(); });
  start();
}

// A person selects rows by their boxes: those that are checked, or all that match except those that are not. The buttons
// say which. With the key Shift, a click also sets the boxes since the last click.
const boxes = () => [...document.querySelectorAll("#tasks input[form=bulk]")];
let last = null;

// count words the buttons, and returns how many boxes are checked.
function count() {
  const form = document.getElementById("bulk"), all = document.getElementById("all")?.checked;
  if (!form) return 0;
  const list = boxes(), n = list.filter((box) => box.checked).length, out = list.length - n;
  const which = !all ? n || "all" : out ? "all but " + out : "all";
  for (const button of form.querySelectorAll("button")) button.textContent = button.value + " " + which;
  return all ? list.length : n;
}

document.addEventListener("click", (event) => {
  const box = event.target, list = boxes(), i = list.indexOf(box), j = list.indexOf(last);
  if (box.id === "all") for (const one of list) one.checked = box.checked;
  else if (i < 0) return;
  else if (event.shiftKey && j >= 0) for (const one of list.slice(Math.min(i, j), Math.max(i, j))) one.checked = box.checked;
  if (i >= 0) last = box;
  count();
});
document.addEventListener("formdata", (event) => {
  if (event.target.id !== "bulk" || !document.getElementById("all").checked) return;
  event.formData.delete("task");
  for (const box of boxes()) if (!box.checked) event.formData.append("not", box.value);
});
addEventListener("pageshow", count); // the browser may have restored the boxes

// The key / goes to the search.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const find = document.querySelector(".find input");
  if (!find) return;
  find.focus();
  find.select();
  event.preventDefault();
});

// A button copies the text of an element. Without HTTPS, browsers have no clipboard for pages, but a command.
for (const button of document.querySelectorAll("[data-copy]")) {
  const from = document.getElementById(button.dataset.copy);
  button.hidden = false;
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(from);
    let copied = false;
    try {
      await navigator.clipboard.writeText(from.textContent);
      copied = true;
    } catch {
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected: copy it with the keyboard";
  });
}

// On a narrow screen the navigation scrolls.
document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

if (document.body.hasAttribute("data-live")) {
  document.getElementById("pill").firstElementChild.href = location.href;
  live(document.getElementById("content"), document.getElementById("live"));
}
