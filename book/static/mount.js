// Draws the widgets of pages that are no notebooks: tools/explorers.py has put them there.
for (const data of document.querySelectorAll("script.mmrl-explorer")) {
  const { esm, css, traits } = JSON.parse(data.textContent);
  const listeners = {};
  const model = {
    get: (name) => traits[name],
    set(name, value) {
      if (JSON.stringify(traits[name]) === JSON.stringify(value)) return;
      traits[name] = value;
      for (const listener of [...(listeners[`change:${name}`] ?? [])]) listener();
    },
    save_changes() {},
    on: (event, listener) => (listeners[event] ??= []).push(listener),
    off: (event, listener) => (listeners[event] = listeners[event]?.filter((x) => x !== listener)),
  };
  const style = document.createElement("style");
  style.textContent = css;
  document.head.append(style);
  // A page that was opened from a folder may not import a file, but may import what it has.
  const address = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
  import(address).then((module) => module.default.render({ model, el: data.previousElementSibling }));
}
