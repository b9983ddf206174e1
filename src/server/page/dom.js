// Elements from plain calls. Text enters the page as text nodes alone: nothing here reads markup.

const kSvg = 'http://www.w3.org/2000/svg';

// el('p', {class: 'note', onclick: f, 'aria-label': 'x'}, 'text', node, [nodes]). Properties that are
// functions listen, false and undefined are left out, true is an empty attribute.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function')
      node.addEventListener(name.slice(2), value);
    else if (name === 'value')
      node.value = value;
    else if (value !== false && value !== undefined && value !== null)
      node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(kSvg, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Strokes on a square of 24.
// clang-format off
const kIcons = {
  add: 'M12 5v14M5 12h14',
  attach: 'M20 11.5l-8.2 8.2a5 5 0 0 1-7.1-7.1l8.6-8.6a3.4 3.4 0 0 1 4.8 4.8l-8.5 8.5a1.7 1.7 0 0 1-2.4-2.4l7.7-7.7',
  back: 'M15 6l-6 6 6 6',
  chart: 'M4 20V4M4 20h16M8.5 16v-5M13 16V8M17.5 16v-3',
  chat: 'M20 12a8 8 0 0 1-11.5 7.2L4 20l.9-4.3A8 8 0 1 1 20 12z',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  down: 'M12 5v14M6 13l6 6 6-6',
  download: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  edit: 'M4 20l1-4.5L16 4.5a2 2 0 0 1 3 0l.5.5a2 2 0 0 1 0 3L8.5 19z',
  file: 'M7 3h7l5 5v13H7zM14 3v5h5',
  forward: 'M9 6l6 6-6 6',
  goon: 'M5 12h14M13 6l6 6-6 6',
  help: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.5 9.5a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.800M12 16.5v.1',
  key: 'M14.5 9.5a4.5 4.5 0 1 0-4 4.5l1.5-1.5h2v-2h2l4.5-4.5v-2.5h-2.5z',
  menu: 'M4 7h16M4 12h16M4 17h16',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z',
  panel: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5',
  redo: 'M19 12a7 7 0 1 1-2.2-5.1L19 9M19 4v5h-5',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4',
  send: 'M12 19V5M6 11l6-6 6 6',
  spark: 'M12 4v4M12 16v4M4 12h4M16 12h4M7 7l2 2M15 15l2 2M17 7l-2 2M9 15l-2 2',
  stop: 'M7 7h10v10H7z',
  sun: 'M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6L7 7M17 17l1.4 1.4M18.4 5.6L17 7M7 17l-1.4 1.4',
  tool: 'M14.5 6.5a4 4 0 0 1 5-2l-2.5 2.5v2h2l2.5-2.5a4 4 0 0 1-5.5 5L9 19a2 2 0 0 1-3-3l7.5-7a4 4 0 0 1 1-2.5z',
  trash: 'M5 7h14M10 4h4M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5',
  upload: 'M12 16V5M7 9l5-5 5 5M5 20h14',
};
// clang-format on

export function icon(name, size = 18) {
  return svg(
      'svg', {viewBox: '0 0 24 24', width: size, height: size, class: 'icon', 'aria-hidden': 'true'},
      svg('path', {d: kIcons[name]}));
}

// A button that is an icon; its label is read out and shown on hover.
export function iconButton(name, label, onclick, attributes = {}) {
  return el(
      'button', {
        type: 'button',
        title: label,
        'aria-label': label,
        onclick,
        ...attributes,
        class: `icon-button ${attributes.class ?? ''}`.trim()
      },
      icon(name));
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat().filter(Boolean));
  return node;
}

// What a person changed in settings, where the browser lets us keep it.
export const memory = {
  get(name, otherwise = null) {
    try {
      const text = localStorage.getItem(`headrace.${name}`);
      return text === null ? otherwise : JSON.parse(text);
    } catch {
      return otherwise;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`headrace.${name}`, JSON.stringify(value));
    } catch {
      // Without storage it holds until the page is closed.
    }
  },
};

// Tells people who look, and those who listen. `action`: {label, run}.
export function toast(text, action) {
  let shelf = document.querySelector('.toasts');
  if (!shelf) document.body.append(shelf = el('div', {class: 'toasts', role: 'status'}));
  const note = el('div', {class: 'toast'}, el('span', {}, text));
  const done = () => note.remove();
  if (action) note.append(el('button', {type: 'button', onclick: () => (done(), action.run())}, action.label));
  shelf.append(note);
  setTimeout(done, action ? 8000 : 3500);
}

// A dialog over the page; resolves to what `submit` returned, or null where it was closed.
export function dialog(title, body, {submit, label, cancel} = {}) {
  return new Promise((resolve) => {
    let result = null;
    const buttons = el('div', {class: 'dialog-buttons'});
    if (cancel) buttons.append(el('button', {type: 'button', class: 'button', onclick: () => box.close()}, cancel));
    if (label) buttons.append(el('button', {type: 'submit', class: 'button primary'}, label));
    const form =
        el('form', {method: 'dialog', onsubmit: () => (result = submit ? submit(form) : true)},
           el('h2', {id: 'dialog-title'}, title), body, buttons);
    const box = el('dialog', {'aria-labelledby': 'dialog-title', onclose: () => (box.remove(), resolve(result))}, form);
    document.body.append(box);
    box.showModal();
  });
}

export async function copyText(text) {
  if (navigator.clipboard) {
    try {
      return await navigator.clipboard.writeText(text);
    } catch {
      // Not allowed, as on plain HTTP from another machine: the older way is left.
    }
  }
  const area = el('textarea', {class: 'offscreen', value: text, 'aria-hidden': 'true'});
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

// Calls `run` at the next frame, once, however often it is asked for.
export function eachFrame(run) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    const go = () => {
      asked = false;
      run();
    };
    // A page that is not shown has no frames, but its answers go on.
    if (document.hidden)
      setTimeout(go, 250);
    else
      requestAnimationFrame(go);
  };
}

export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], {type}));
  el('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
