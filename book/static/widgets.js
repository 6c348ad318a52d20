// Set the paths of the widgets' scripts and fonts, between require.js and html-manager.
(() => {
  const vendor = new URL("vendor/", document.currentScript.src).href;
  window.__jupyter_widgets_assets_path__ = vendor;
  requirejs.config({ paths: { anywidget: `${vendor}anywidget` } });
})();
