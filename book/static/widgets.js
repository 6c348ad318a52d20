// Between require.js and html-manager: where the widgets' own scripts and fonts are.
(() => {
  const vendor = new URL("vendor/", document.currentScript.src).href;
  window.__jupyter_widgets_assets_path__ = vendor;
  requirejs.config({ paths: { anywidget: `${vendor}anywidget` } });
})();
