// Where people write: a text that grows, files beside it, and send or stop.
import {el, icon, iconButton, memory, replace, toast} from './dom.js';
import {formatNumber, t} from './words.js';

const kFileBytesMax = 1 << 20;
const kFilesMax = 20;

// The file as text; throws where it is none.
async function readFile(file) {
  if (file.size > kFileBytesMax) throw new Error(t('fileTooLarge', {name: file.name}));
  const bytes = await file.arrayBuffer();
  try {
    const text = new TextDecoder('utf-8', {fatal: true}).decode(bytes);
    if (text.includes('\0')) throw new Error('binary');
    return {name: file.name, text};
  } catch {
    throw new Error(t('fileIsNoText', {name: file.name}));
  }
}

export class Composer {
  // actions: send(text, files), stop(), editLast()
  constructor(actions) {
    this.actions = actions;
    this.files = [];
    this.running = false;
    this.area = el('textarea', {
      id: 'message',
      rows: '1',
      placeholder: t('messageHint'),
      'aria-label': t('message'),
      oninput: () => this.changed(),
      onkeydown: (event) => this.key(event),
      onpaste: (event) => this.paste(event)
    });
    this.picker = el('input', {
      type: 'file',
      multiple: true,
      class: 'offscreen',
      tabindex: '-1',
      'aria-hidden': 'true',
      onchange: () => (this.attach([...this.picker.files]), (this.picker.value = ''))
    });
    this.shelf = el('ul', {class: 'shelf', 'aria-label': t('files')});
    this.modes = el('div', {class: 'modes'});
    this.button = el('button', {type: 'submit', class: 'send'});
    this.node =
        el('form', {
          class: 'composer',
          onsubmit: (event) => (event.preventDefault(), this.submit()),
          ondragover: (event) => (event.preventDefault(), this.node.classList.add('over')),
          ondragleave: () => this.node.classList.remove('over'),
          ondrop: (event) => this.drop(event)
        },
           this.shelf, this.area,
           el('div', {class: 'composer-bar'}, iconButton('attach', t('attach'), () => this.picker.click()), this.picker,
              this.modes, this.button));
    this.setRunning(false);
  }

  get text() {
    return this.area.value;
  }
  set text(text) {
    this.area.value = text;
    this.changed();
  }

  changed() {
    if (!CSS.supports('field-sizing: content')) {
      this.area.style.blockSize = 'auto';
      this.area.style.blockSize = `${this.area.scrollHeight}px`;
    }
    if (!this.running) this.button.disabled = !this.text.trim() && this.files.length === 0;
  }

  setRunning(running) {
    this.running = running;
    const label = running ? t('stop') : t('send');
    this.button.title = label;
    this.button.setAttribute('aria-label', label);
    this.button.classList.toggle('stops', running);
    replace(this.button, icon(running ? 'stop' : 'send', 18));
    this.button.disabled = false;
    this.changed();
  }

  // What of the settings changes answers without being seen in them.
  setModes(names) {
    replace(this.modes, names.map((name) => el('span', {class: 'chip'}, name)));
  }

  submit() {
    if (this.running) return this.actions.stop();
    const text = this.text.trim();
    if (!text && this.files.length === 0) return;
    this.actions.send(text, this.files);
    this.files = [];
    this.showFiles();
    this.text = '';
  }

  key(event) {
    if (event.isComposing) return;  // Enter ends a word of Chinese or Japanese
    const enterSends = memory.get('enterSends', true);
    const plain = !event.shiftKey && !event.altKey;
    if (event.key === 'Enter' && plain && (enterSends || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!this.running) this.submit();
    }
    if (event.key === 'ArrowUp' && this.text === '' && this.actions.editLast()) event.preventDefault();
  }

  async attach(files) {
    for (const file of files) {
      try {
        if (this.files.length >= kFilesMax) throw new Error(t('tooManyFiles', {n: kFilesMax}));
        this.files.push(await readFile(file));
      } catch (error) {
        toast(error.message);
      }
    }
    this.showFiles();
    this.area.focus();
  }

  showFiles() {
    replace(
        this.shelf,
        this.files.map(
            (file) =>
                el('li', {class: 'chip'}, icon('file', 14), el('span', {class: 'chip-name'}, file.name),
                   el('span', {class: 'faint'}, t('characterCount', {n: formatNumber(file.text.length)})),
                   iconButton('close', `${t('remove')}: ${file.name}`, () => {
                     this.files = this.files.filter((other) => other !== file);
                     this.showFiles();
                   }))));
    this.shelf.hidden = this.files.length === 0;
    this.changed();
  }

  paste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    this.attach(files);
  }
  drop(event) {
    event.preventDefault();
    this.node.classList.remove('over');
    this.attach([...event.dataTransfer.files]);
  }
}
