// Draw the widgets that tools/explorers.py puts on pages other than notebooks.
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
  // A page that is opened from a folder cannot import a file, but it can import its own text.
  const address = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
  import(address).then((module) => module.default.render({ model, el: data.previousElementSibling }));
}
