// The panel beside a conversation: what its requests say of the model, of sampling and of form; and the
// page's own choices below.
import {apiKey, keyIsRemembered, setApiKey} from './api.js';
import {el, iconButton, memory, replace, toast} from './dom.js';
import {kLanguages, language, t} from './words.js';

// name, least, most, step of the slider, where it stands while nothing is given.
const kSliders = [
  ['temperature', 0, 2, 0.05, 1],
  ['top_p', 0, 1, 0.01, 1],
  ['top_k', 0, 200, 1, 0],
  ['min_p', 0, 1, 0.01, 0],
  ['repetition_penalty', 0.5, 2, 0.01, 1],
  ['presence_penalty', -2, 2, 0.05, 0],
  ['frequency_penalty', -2, 2, 0.05, 0],
];

const kFirstSliders = 4;  // that are shown at once
const kSampling = [...kSliders.map((row) => row[0]), 'max_tokens', 'seed', 'stop', 'reasoning_effort'];

const kSchema = {
  type: 'object',
  properties: {name: {type: 'string'}, rivers: {type: 'array', items: {type: 'string'}, minItems: 1, maxItems: 3}},
  required: ['name', 'rivers'],
  additionalProperties: false
};
const kTools = [{
  name: 'weather',
  description: 'The weather of a place',
  parameters: {type: 'object', properties: {place: {type: 'string'}}, required: ['place']}
}];

// '' where it is what is expected, else what is wrong with it.
export function problemOf(kind, text) {
  if (!text.trim()) return kind === 'schema' ? t('schemaMissing') : '';
  try {
    const value = JSON.parse(text);
    if (kind === 'schema')
      return typeof value === 'object' && value !== null && !Array.isArray(value) ? '' : t('objectExpected');
    const named = Array.isArray(value) && value.every((tool) => typeof (tool?.function ?? tool)?.name === 'string');
    return named ? '' : t('toolsExpected');
  } catch (error) {
    return error.message;
  }
}

const labelOf = (id, attributes, text) => el('label', {'for': id, ...attributes}, text);

export class Settings {
  // page: changed(settings), close()
  constructor(page) {
    this.page = page;
    this.settings = {};
    this.body = el('div', {class: 'settings-body'});
    this.node =
        el('aside', {class: 'settings', 'aria-label': t('settings')},
           el('div', {class: 'settings-head'}, el('h2', {}, t('settings')),
              iconButton('close', t('close'), () => page.close())),
           this.body);
  }

  // Of the conversation that is shown; the panel writes into it.
  show(settings) {
    this.settings = settings;
    replace(this.body, this.promptSection(), this.samplingSection(), this.formSection(), this.pageSection());
  }

  set(name, value) {
    if (value === null || value === '')
      delete this.settings[name];
    else
      this.settings[name] = value;
    this.page.changed(this.settings);
  }

  section(title, ...children) {
    return el('section', {}, el('h3', {}, title), ...children);
  }

  promptSection() {
    const area = el('textarea', {
      id: 'system',
      rows: '4',
      placeholder: t('systemHint'),
      value: this.settings.system ?? '',
      oninput: () => this.set('system', area.value)
    });
    return this.section(t('systemPrompt'), labelOf('system', {class: 'offscreen'}, t('systemPrompt')), area);
  }

  // --- Sampling ---

  samplingSection() {
    const reset = this.link(t('reset'), () => {
      for (const name of kSampling) delete this.settings[name];
      this.page.changed(this.settings);
      this.show(this.settings);
    });
    const sliders = kSliders.map((row) => this.slider(...row));
    const isMore = kSliders.slice(kFirstSliders).some(([name]) => name in this.settings);
    return el(
        'section', {}, el('div', {class: 'section-head'}, el('h3', {}, t('sampling')), reset),
        sliders.slice(0, kFirstSliders), this.number('max_tokens', 1), this.number('seed', 0),
        el('details', {open: isMore}, el('summary', {}, t('more')), sliders.slice(kFirstSliders), this.stopField(),
           this.effortField()));
  }

  stopField() {
    const area = el('textarea', {
      id: 'stop',
      rows: '2',
      placeholder: t('stopHint'),
      value: this.settings.stop ?? '',
      oninput: () => this.set('stop', area.value)
    });
    return el('div', {class: 'field column'}, labelOf('stop', {}, t('stopStrings')), area);
  }
  effortField() {
    const levels = ['none', 'low', 'medium', 'high'].map((each) => [each, t(`effort_${each}`)]);
    return this.select('reasoning_effort', t('effort'), [['', t('effortDefault')], ...levels]);
  }

  link(label, onclick) {
    return el('button', {type: 'button', class: 'small-link', onclick}, label);
  }

  slider(name, least, most, step, neutral) {
    const {settings} = this;
    const given = () => name in settings;
    const number = el('input', {
      type: 'number',
      min: String(least),
      step: 'any',
      id: name,
      placeholder: t('auto'),
      value: settings[name] ?? '',
      oninput: () => set(number.value === '' ? null : Number(number.value))
    });
    const range = el('input', {
      type: 'range',
      min: String(least),
      max: String(most),
      step: String(step),
      'aria-label': t(name),
      oninput: () => set(Number(range.value))
    });
    const set = (value) => {
      this.set(name, value);
      if (document.activeElement !== number) number.value = value ?? '';
      range.value = value ?? neutral;
      row.classList.toggle('given', given());
    };
    const row =
        el('div', {class: `field slider ${given() ? 'given' : ''}`}, labelOf(name, {title: t(`${name}_hint`)}, t(name)),
           number, range);
    range.value = settings[name] ?? neutral;
    return row;
  }

  number(name, least) {
    const input = el('input', {
      type: 'number',
      min: String(least),
      step: '1',
      id: name,
      placeholder: t(`${name}_none`),
      value: this.settings[name] ?? '',
      oninput: () => this.set(name, input.value === '' ? null : Number(input.value))
    });
    return el('div', {class: 'field'}, labelOf(name, {title: t(`${name}_hint`)}, t(name)), input);
  }

  select(name, label, options, value = this.settings[name] ?? '', changed = (chosen) => this.set(name, chosen)) {
    const box =
        el('select', {id: name, onchange: () => changed(box.value)},
           options.map(([key, text]) => el('option', {value: key, selected: key === value}, text)));
    return el('div', {class: 'field'}, labelOf(name, {}, label), box);
  }

  tick(name, label, value, changed) {
    const box = el('input', {type: 'checkbox', id: name, checked: value, onchange: () => changed(box.checked)});
    return el('div', {class: 'field tick'}, labelOf(name, {}, label), box);
  }

  // --- Form ---

  formSection() {
    const editor = this.editor('schema', t('schema'), kSchema);
    const shown = (format) => (editor.hidden = format !== 'schema');
    shown(this.settings.format);
    return this.section(
        t('output'),
        this.select(
            'format', t('format'), [['', t('formatText')], ['json', t('formatJson')], ['schema', t('formatSchema')]],
            this.settings.format ?? '',
            (format) => {
              if (format === 'schema' && !this.settings.schema) this.settings.schema = JSON.stringify(kSchema, null, 2);
              this.set('format', format);
              this.show(this.settings);
            }),
        editor,
        this.tick(
            'logprobs', t('probabilitiesSetting'), this.settings.probabilities ?? false,
            (on) => this.set('probabilities', on || null)),
        el('details', {open: Boolean(this.settings.tools)}, el('summary', {}, t('tools')),
           this.editor('tools', t('toolsLabel'), kTools)));
  }

  // JSON with a word on what is wrong with it.
  editor(name, label, example) {
    const area = el('textarea', {
      id: name,
      class: 'mono',
      rows: name === 'schema' ? '12' : '8',
      spellcheck: 'false',
      value: this.settings[name] ?? '',
      'aria-describedby': `${name}-problem`,
      oninput: () => (this.set(name, area.value), check()),
      onkeydown: (event) => this.indent(event, area)
    });
    const problem = el('p', {class: 'problem-line', id: `${name}-problem`, role: 'status'});
    const check = () => {
      const text = problemOf(name, area.value);
      problem.textContent = text || (area.value.trim() ? t('valid') : '');
      problem.classList.toggle('wrong', Boolean(text));
      area.setAttribute('aria-invalid', String(Boolean(text)));
    };
    const write = (text) => {
      area.value = text;
      this.set(name, text);
      check();
    };
    const tidy = () => {
      if (!problemOf(name, area.value)) write(JSON.stringify(JSON.parse(area.value), null, 2));
    };
    check();
    return el(
        'div', {class: 'field column'}, labelOf(name, {class: 'offscreen'}, label), area, problem,
        el('div', {class: 'editor-buttons'}, this.link(t('example'), () => write(JSON.stringify(example, null, 2))),
           this.link(t('tidy'), tidy), this.link(t('clear'), () => write(''))));
  }

  // Enter keeps the line's indent. Tab goes on to the next field, as everywhere.
  indent(event, area) {
    if (event.key !== 'Enter' || event.isComposing) return;
    event.preventDefault();
    const before = area.value.slice(0, area.selectionStart);
    const [space] = /^ */.exec(before.slice(before.lastIndexOf('\n') + 1));
    const deeper = /[\[\{]\s*$/.test(before);
    area.setRangeText(`\n${space}${deeper ? '  ' : ''}`, area.selectionStart, area.selectionEnd, 'end');
    area.dispatchEvent(new Event('input'));
  }

  // --- The page ---

  pageSection() {
    const themes = [['', t('themeSystem')], ['light', t('themeLight')], ['dark', t('themeDark')]];
    const theme = document.documentElement.dataset.theme ?? '';
    const speak = (chosen) => {
      memory.set('language', chosen);
      location.reload();
    };
    return this.section(
        t('thisPage'), this.select('theme', t('theme'), themes, theme, setTheme),
        this.select('language', t('language'), kLanguages, language, speak),
        this.tick('enter', t('enterSends'), memory.get('enterSends', true), (on) => memory.set('enterSends', on)),
        this.keyField());
  }

  keyField() {
    const keep = () => this.keep(input, remember);
    const input = el('input', {
      type: 'password',
      id: 'key',
      autocomplete: 'current-password',
      value: apiKey(),
      placeholder: t('keyNone'),
      onchange: keep
    });
    const remember = el('input', {type: 'checkbox', id: 'remember-key', checked: keyIsRemembered(), onchange: keep});
    return el(
        'form', {class: 'key-form', onsubmit: (event) => event.preventDefault()},
        el('div', {class: 'field'}, labelOf('key', {}, t('apiKey')), input),
        el('div', {class: 'field tick'}, labelOf('remember-key', {}, t('rememberKey')), remember));
  }
  keep(input, remember) {
    setApiKey(input.value.trim(), remember.checked);
    toast(t('saved'));
    this.page.keyChanged();
  }
}

export function setTheme(theme) {
  if (theme)
    document.documentElement.dataset.theme = theme;
  else
    delete document.documentElement.dataset.theme;
  try {
    if (theme)
      localStorage.setItem('headrace.theme', theme);
    else
      localStorage.removeItem('headrace.theme');
  } catch {
    // It holds until the page is closed.
  }
}
