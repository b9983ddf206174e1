// Before the first paint, so that a dark page does not flash white. The choice is made in settings.js.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem('headrace.theme');
  } catch {
    // Storage may be forbidden: then the system's theme is taken.
  }
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
