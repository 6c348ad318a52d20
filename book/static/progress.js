// Store a reader's progress in the course: chapters read, predictions, open answers, and answers to
// one-minute checks. The record is one entry of localStorage and is never sent. Without this script, or
// in a browser without storage, the text is the same, but progress is not stored.
(() => {
  const KEY = "mmrl-course", VERSION = 1, LONGEST = 200;

  // An older script must not replace the record of a newer one. Raises if storage is forbidden.
  const newer = () => {
    const record = localStorage.getItem(KEY);
    try {
      return JSON.parse(record)?.version > VERSION;
    } catch {
      return false;
    }
  };
  const writable = () => {
    try {
      localStorage.setItem(`${KEY}-test`, "");
      localStorage.removeItem(`${KEY}-test`);
      return !newer();
    } catch {
      return false;
    }
  };
  // Record: {version, pages: {page: {read, said: {question: text}, open: {answer: true},
  // chosen: {check: index}}}}. Entries of any other form are ignored.
  const plain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const load = () => {
    try {
      const record = JSON.parse(localStorage.getItem(KEY));
      return plain(record) && record.version === VERSION && plain(record.pages) ? record.pages : {};
    } catch {
      return {};
    }
  };
  const recall = (page) => {
    const found = load()[page];
    const [part, of] = [plain(found) ? found : {}, (value) => (plain(value) ? value : {})];
    return { read: part.read === true, said: of(part.said), open: of(part.open), chosen: of(part.chosen) };
  };
  // Read again before writing, because other pages may be open. Warn and return false if storing fails.
  const remember = (page, change) => {
    const entry = recall(page);
    change(entry);
    try {
      if (!newer()) {
        const pages = { ...load(), [page]: entry };
        localStorage.setItem(KEY, JSON.stringify({ version: VERSION, pages }));
        return true;
      }
    } catch { /* storage is full or disabled */ }
    warn();
    return false;
  };

  const html = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  // A short key for a text (FNV-1a), so that an edited question gets a new key.
  const key = (text) => {
    let hash = 0x811c9dc5;
    for (const unit of text.replace(/\s+/g, " ").trim()) {
      hash = Math.imul(hash ^ unit.codePointAt(0), 0x01000193) >>> 0;
    }
    return hash.toString(36);
  };

  const root = new URL(document.documentElement.dataset.content_root || "./", location.href).pathname;
  const below = ({ pathname }) => (pathname.startsWith(root) ? pathname.slice(root.length) : "");
  const name = (url) => below(url).replace(/\.html$/, "");
  const here = name(location);
  const article = document.querySelector(".bd-article");
  const CHAPTER = /^notebooks\/\d/;
  let repaint = () => {};
  let warning = null; // shown once per page, at the bottom of the window
  const warn = () => {
    if (warning) return;
    const words = "Your answers and ticks on this page are not stored.";
    warning = html("p", { class: "not-stored", role: "status" }, words);
    article.append(warning);
  };

  // The sidebar lists the parts and their chapters.
  const parts = () => [...document.querySelectorAll(".bd-links p.caption")].map((caption) => {
    const links = [...(caption.nextElementSibling?.querySelectorAll("a[href]") ?? [])];
    const chapters = links.filter((link) => CHAPTER.test(name(new URL(link.href))));
    return { title: caption.textContent.trim(), chapters };
  }).filter((part) => part.chapters.length);

  const marks = () => {
    for (const { chapters } of parts()) {
      for (const link of chapters) {
        link.querySelector(".read-mark")?.remove();
        if (!recall(name(new URL(link.href))).read) continue;
        link.append(html("span", { class: "read-mark", role: "img", "aria-label": "(read)" }, "\u00a0✓"));
      }
    }
  };

  // A box to tick at the end of a chapter.
  const tick = () => {
    const box = html("input", { type: "checkbox" });
    const note = html("span", { role: "status" });
    box.addEventListener("change", () => {
      const stored = remember(here, (entry) => (entry.read = box.checked));
      note.textContent = stored ? "" : "This is not stored.";
      repaint();
    });
    const label = html("label", {}, box, " I have read this chapter");
    article.append(html("p", { class: "read-tick" }, label, note));
    return () => (box.checked = recall(here).read);
  };

  // On the first page: a line per part, the next chapter, and a button that clears the record.
  const progress = (place) => {
    const [list, next] = [html("ul", {}), html("p", {})];
    const button = html("button", { type: "button" }, "Clear my progress");
    const note = html("span", { role: "status" });
    button.addEventListener("click", () => {
      if (!confirm("Clear your ticks, predictions, and answers on all pages? This cannot be undone.")) return;
      let cleared = false;
      try {
        localStorage.removeItem(KEY);
        cleared = localStorage.getItem(KEY) === null;
      } catch { /* storage is disabled */ }
      repaint();
      note.textContent = cleared ? "Your progress is cleared." : "This browser did not clear your progress.";
    });
    const heading = html("h2", { id: "your-progress" }, "Your progress");
    const lost = html("p", {}, "The site cannot store your progress in this browser.");
    place.append(heading, lost, next, list, html("p", {}, button, note));
    return () => {
      note.textContent = "";
      lost.hidden = writable();
      const order = []; // [link, true if read], of all chapters
      list.replaceChildren(...parts().map(({ title, chapters }) => {
        const read = chapters.map((link) => recall(name(new URL(link.href))).read);
        const [count, all] = [read.filter(Boolean).length, chapters.length];
        order.push(...chapters.map((link, i) => [link, read[i]]));
        const bar = html("progress", { max: all, value: count });
        const words = `${count} of ${all} chapter${all === 1 ? "" : "s"}`;
        return html("li", {}, html("label", {}, html("span", {}, `Part ${title}: ${words}`), bar));
      }));
      // The next chapter is the first unread one after the last chapter that was read.
      const last = order.map(([, read]) => read).lastIndexOf(true);
      const [link] = order.slice(last + 1).concat(order).find(([, read]) => !read) ?? [];
      next.hidden = last < 0 || !link;
      if (next.hidden) return;
      next.replaceChildren("Continue with ", html("a", { href: link.href }, link.textContent.trim()), ".");
    };
  };

  // A check is a paragraph, a list of choices, and an answer. The answer begins with the right choice in
  // bold, and ends with a list in which each wrong choice is in bold, followed by an explanation.
  const bold = (node) => node?.querySelector("strong")?.textContent.trim();
  const check = (question) => {
    const choices = question.nextElementSibling, answer = choices?.nextElementSibling;
    if (choices?.tagName !== "UL" || answer?.tagName !== "DETAILS") return;
    const [, ...because] = answer.children;
    const wrong = because.at(-1)?.tagName === "UL" ? [...because.pop().children] : [];
    const why = new Map(wrong.map((item) => [bold(item), [...item.children]]));
    const right = bold(because[0]);
    why.set(right, because);
    const labels = [...choices.children].map((item) => item.textContent.trim());
    if (!labels.every((label) => why.has(label)) || labels.length !== why.size) return;

    const id = `check-${key(question.textContent + choices.textContent)}`;
    question.id ||= id;
    const boxes = labels.map((label, i) => {
      const box = html("input", { type: "radio", name: id, value: i, required: "" });
      // Screen readers do not derive the name of a button from a formula.
      const spoken = label.replace(/\\[()]?|[{}]/g, "");
      if (spoken !== label) box.setAttribute("aria-label", spoken);
      return box;
    });
    const rows = [...choices.children].map((item, i) => {
      const text = item.querySelector("p") ?? item;
      return html("label", {}, boxes[i], html("span", {}, ...text.childNodes));
    });
    const verdict = html("div", { class: "verdict", "aria-live": "polite" });
    const button = html("button", { type: "submit" }, "Check");
    const group = html("fieldset", { "aria-labelledby": question.id }, ...rows);
    const form = html("form", { class: "check" }, group, button, verdict);
    choices.replaceWith(form);

    const show = (i) => {
      const good = labels[i] === right;
      form.dataset.verdict = good ? "right" : "wrong";
      const mark = html("p", { class: "outcome" }, good ? "✓ Right." : "✗ Not right. Try again.");
      verdict.replaceChildren(mark, ...why.get(labels[i]).map((node) => node.cloneNode(true)));
    };
    form.addEventListener("change", () => {
      delete form.dataset.verdict;
      verdict.replaceChildren();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const i = boxes.findIndex((box) => box.checked);
      show(i);
      remember(here, (entry) => (entry.chosen[id] = i));
    });
    const chosen = recall(here).chosen[id];
    if (!Number.isInteger(chosen) || !boxes[chosen]) return;
    boxes[chosen].checked = true;
    show(chosen);
  };

  // Answers and hidden cells remain open if the reader has opened them.
  const reveal = (details) => {
    const id = key(details.textContent);
    if (recall(here).open[id]) details.open = true;
    details.addEventListener("toggle", () => {
      remember(here, ({ open }) => (details.open ? (open[id] = true) : delete open[id]));
    });
  };

  // A prediction is entered in the widget that follows it, or in a separate box if there is none.
  const predict = () => {
    const widget = 'script[type*="widget-view"]';
    const order = [...article.querySelectorAll(`blockquote, details, ${widget}`)];
    order.forEach((box, i) => {
      if (bold(box) !== "Predict." || box.tagName !== "BLOCKQUOTE" || order[i + 1]?.matches(widget)) return;
      const id = key(box.textContent);
      const field = html("input", { type: "text", maxlength: LONGEST, size: 16, autocomplete: "off" });
      const said = recall(here).said[id];
      field.value = typeof said === "string" ? said : "";
      field.addEventListener("input", () => remember(here, (entry) => (entry.said[id] = field.value)));
      box.append(html("label", { class: "prediction" }, "Your prediction ", field));
    });
    const asked = (form) => key(form.querySelector("label").textContent);
    document.addEventListener("submit", ({ target }) => {
      const text = target.matches(".mmrl-ask") && target.querySelector("input").value.trim();
      if (text) remember(here, (entry) => (entry.said[asked(target)] = text.slice(0, LONGEST)));
    }, true);
    const restore = () => {
      for (const form of article.querySelectorAll(".mmrl-ask:not([data-asked])")) {
        form.dataset.asked = "";
        const said = recall(here).said[asked(form)];
        if (typeof said !== "string" || !said || form.hidden) continue;
        form.querySelector("input").value = said;
        form.requestSubmit();
      }
    };
    new MutationObserver(restore).observe(article, { childList: true, subtree: true });
    restore();
  };

  if (!article) return;
  for (const details of article.querySelectorAll("details")) reveal(details);
  for (const question of article.querySelectorAll("p")) {
    if (question.firstElementChild?.matches("strong") && bold(question) === "One-minute check.") check(question);
  }
  predict();
  const place = document.getElementById("course-progress");
  const own = place ? progress(place) : CHAPTER.test(here) ? tick() : () => {};
  repaint = () => {
    marks();
    own();
  };
  repaint();
  addEventListener("pageshow", repaint);
  addEventListener("storage", ({ key, newValue }) => {
    if (key !== null && key !== KEY) return;
    if (newValue === null) location.reload(); // another page cleared the record
    else repaint();
  });
})();
