// Markdown as models write it, to DOM nodes: CommonMark's blocks and emphasis, GitHub's tables, task
// lists and bare links, TeX between dollars or \( \). Text becomes text nodes; HTML is shown, not read;
// links go to http, https and mailto alone, and images are links, so that no answer makes the browser
// ask another site for anything.
import {copyText, el, iconButton} from './dom.js';
import {CodeView} from './highlight.js';
import {mathNode} from './maths.js';
import {t} from './words.js';

// What ends a line for `.` and `$` but not for split('\n'): a line end, or a blank.
const kLineEnd = /\r\n?|[\u2028\u2029]/g;
const kDepthMax = 12;  // of quotes and lists in each other; deeper ones stay text
const kMathLengthMax = 4000;
const kColumnsMax = 64;

// --- Blocks ---

// Lines are short, or long and hostile: a pattern has no two repeats beside each other that take the same.
const kFence = /^( {0,3})(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?!\S)/;
const kRule = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/;
const kQuote = /^ {0,3}> ?/;
const kTableRule = /^:?-+:?$/;  // of one column
const kMathOpen = /^\s*(\$\$|\\\[)/;

const indentOf = (line) => line.length - line.trimStart().length;
const isBlank = (line) => line.trim() === '';

function beginsBlock(lines, i) {
  const line = lines[i];
  return kFence.test(line) || kHeading.test(line) || kRule.test(line) || kQuote.test(line) || kMathOpen.test(line) ||
      (kItem.test(line) && kItem.exec(line)[3] !== undefined) || isTable(lines, i);
}

function isTable(lines, i) {
  return lines[i].includes('|') && i + 1 < lines.length && lines[i + 1].includes('-') && lines[i + 1].includes('|') &&
      cellsIn(lines[i + 1]).every((cell) => kTableRule.test(cell.trim()));
}

// The words behind a heading's marks, without marks that close it.
function headingText(text) {
  const words = text.trim();
  let end = words.length;
  while (words[end - 1] === '#') --end;
  return end === 0 || isBlank(words[end - 1]) ? words.slice(0, end).trimEnd() : words;
}

function takeFence(lines, i) {
  const [, indent, mark, info] = kFence.exec(lines[i]);
  const body = [];
  let end = i + 1;
  let closed = false;
  for (; end < lines.length; ++end) {
    const line = lines[end].trim();
    if (line.length >= mark.length && line === mark[0].repeat(line.length) &&
        indentOf(lines[end]) <= indent.length + 3) {
      closed = true;
      ++end;
      break;
    }
    body.push(lines[end].slice(Math.min(indentOf(lines[end]), indent.length)));
  }
  return {kind: 'code', language: info.trim().split(/\s+/)[0].toLowerCase(), text: body.join('\n'), closed, end};
}

// Up to a blank line; what does not end there, or has words behind it, is a paragraph.
function takeMath(lines, i) {
  const open = kMathOpen.exec(lines[i])[1];
  const close = open === '$$' ? '$$' : '\\]';
  let text = lines[i].slice(lines[i].indexOf(open) + 2);
  let end = i + 1;
  while (!text.includes(close) && end < lines.length && !isBlank(lines[end]) && text.length < kMathLengthMax)
    text += `\n${lines[end++]}`;
  const at = text.indexOf(close);
  if (at < 0 || at > kMathLengthMax || !isBlank(text.slice(at + 2)))
    return {kind: 'paragraph', text: lines.slice(i, end).join('\n'), end};
  return {kind: 'math', text: text.slice(0, at), end};
}

function takeQuote(lines, i, depth) {
  const body = [];
  let end = i;
  for (; end < lines.length && !isBlank(lines[end]); ++end) {
    if (!kQuote.test(lines[end]) && beginsBlock(lines, end)) break;
    body.push(lines[end].replace(kQuote, ''));
  }
  return {kind: 'quote', blocks: parseBlocks(body, depth + 1), end};
}

const cellsIn = (line) => line.trim().replace(/^\|/, '').replace(/\|$/, '').split('|');

function cellsOf(line) {
  const cells = [];
  let cell = '';
  let code = false;
  const text = line.trim().replace(/^\|/, '').replace(/\|$/, '');
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === '\\' && text[i + 1] === '|')
      cell += text[++i];
    else if (text[i] === '|' && !code)
      cells.push(cell), cell = '';
    else {
      if (text[i] === '`') code = !code;
      cell += text[i];
    }
  }
  return [...cells, cell].slice(0, kColumnsMax).map((each) => each.trim());
}

function takeTable(lines, i) {
  const align =
      cellsOf(lines[i + 1]).map((rule) => (rule.endsWith(':') ? (rule.startsWith(':') ? 'center' : 'end') : 'start'));
  const rows = [];
  let end = i + 2;
  while (end < lines.length && !isBlank(lines[end]) && lines[end].includes('|')) rows.push(cellsOf(lines[end++]));
  return {kind: 'table', head: cellsOf(lines[i]), rows, align, end};
}

// The lines of one item, without its mark and its indent.
function takeItem(lines, i, first) {
  const [, indent, mark, text = ''] = kItem.exec(lines[i]);
  const base = indent.length;
  const inner = base + mark.length + 1;
  const body = [text];
  let end = i + 1;
  let loose = false;
  for (; end < lines.length; ++end) {
    const line = lines[end];
    if (isBlank(line)) {
      let next = end;
      while (next < lines.length && isBlank(lines[next])) ++next;
      if (next === lines.length || indentOf(lines[next]) < base + 2) break;
      for (; end < next; ++end) body.push('');
      --end;
      loose = true;
      continue;
    }
    const deep = indentOf(line) >= base + 2 && (indentOf(line) > first || !kItem.test(line));
    const lazy = !isBlank(lines[end - 1]) && !beginsBlock(lines, end) && !kItem.test(line);
    if (!deep && !lazy) break;
    body.push(line.slice(Math.min(indentOf(line), inner)));
  }
  return {body, end, loose};
}

function takeList(lines, i, depth) {
  const [, , mark] = kItem.exec(lines[i]);
  const ordered = /\d/.test(mark);
  const list = {kind: 'list', start: ordered ? parseInt(mark, 10) : null, items: [], loose: false, end: i};
  const first = indentOf(lines[i]);
  const sameKind = (line) => {
    const found = kItem.exec(line);
    return found && /\d/.test(found[2]) === ordered && found[2].at(-1) === mark.at(-1) && indentOf(line) < first + 2 &&
        !kRule.test(line);
  };
  for (let at = i; at < lines.length && sameKind(lines[at]);) {
    const {body, end, loose} = takeItem(lines, at, first);
    const task = /^\[([ xX])\]\s+/.exec(body[0]);
    if (task) body[0] = body[0].slice(task[0].length);
    list.items.push({task: task && task[1] !== ' ', isTask: Boolean(task), blocks: parseBlocks(body, depth + 1)});
    list.loose ||= loose;
    list.end = end;
    at = end;
    while (at < lines.length && isBlank(lines[at])) ++at;
    if (at > end && at < lines.length && sameKind(lines[at])) list.loose = true;
  }
  return list;
}

function takeParagraph(lines, i) {
  let end = i + 1;
  while (end < lines.length && !isBlank(lines[end]) && !beginsBlock(lines, end)) ++end;
  return {kind: 'paragraph', text: lines.slice(i, end).map((line) => line.trimStart()).join('\n'), end};
}

function takeBlock(lines, i, depth) {
  const line = lines[i];
  if (kFence.test(line)) return takeFence(lines, i);
  const heading = kHeading.exec(line);
  if (heading)
    return {kind: 'heading', level: heading[1].length, text: headingText(line.slice(heading[0].length)), end: i + 1};
  if (kRule.test(line)) return {kind: 'rule', end: i + 1};
  if (kMathOpen.test(line)) return takeMath(lines, i);
  if (depth < kDepthMax) {
    if (kQuote.test(line)) return takeQuote(lines, i, depth);
    if (kItem.test(line)) return takeList(lines, i, depth);
  }
  if (isTable(lines, i)) return takeTable(lines, i);
  return takeParagraph(lines, i);
}

// Each block has `first`, its first line, and `end`, the line behind it.
function parseBlocks(lines, depth = 0) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      ++i;
      continue;
    }
    const block = takeBlock(lines, i, depth);
    block.first = i;
    blocks.push(block);
    i = block.end;
  }
  return blocks;
}

// --- Words within a block ---

const kEntities = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: '\u00a0',
  copy: '©',
  hellip: '…',
  mdash: '—',
  ndash: '–',
  times: '×',
  rarr: '→',
  larr: '←',
  le: '≤',
  ge: '≥',
  deg: '°'
};
const kEntity = /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-zA-Z]{2,8}));/y;
const kClosers = {
  ')': /\\\)/g,
  ']': /\\\]/g,
  '$': /(?<!\\)\$/g,
  '$$': /(?<!\\)\$\$/g
};  // of maths
const kBareLink = /https?:\/\/[^\s<>"'`]+/y;
const kAngleLink = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const kTarget =
    /\(\s{0,9}(?:<([^<>\n]{0,2000})>|((?:[^\s()\\]|\\.|\([^\s()]*\)){0,2000}))(?:\s{1,9}(?:"([^"\n]{0,500})"|'([^'\n]{0,500})'))?\s{0,9}\)/y;
const kSpace = /\s/;
const kPunctuation = /[\p{P}\p{S}]/u;

const matchAt = (pattern, text, at) => {
  pattern.lastIndex = at;
  return pattern.exec(text);
};

// Nothing where it is another kind of address: those stay text.
function safeUrl(text) {
  try {
    const url = new URL(text.replaceAll('\\', ''));
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(url, children, title) {
  return el('a', {href: url, title: title || url, target: '_blank', rel: 'noopener noreferrer nofollow'}, children);
}

// Reads a text once, left to right; `out` holds nodes and marks that may yet turn out to be emphasis.
class InlineReader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.plain = '';
    this.out = [];
    this.openers = {'*': [], _: [], '~': []};  // places in `out`
    this.brackets = [];
    this.noRun = new Set();  // lengths of backtick runs that do not come again
    this.closers = {};       // where the next of kClosers are
    this.linkFrom = 0;       // what is before is no link
  }

  read() {
    while (this.at < this.text.length) this.step();
    this.flush();
    return this.nodes(0);
  }

  step() {
    const {text, at} = this;
    switch (text[at]) {
      case '\\':
        return this.readEscape();
      case '`':
        return this.readCode();
      case '*':
      case '_':
      case '~':
        return this.readMark();
      case '$':
        return this.readDollar();
      case '!':
        return text[at + 1] === '[' ? this.openBracket(2) : this.keep(1);
      case '[':
        return this.openBracket(1);
      case ']':
        return this.closeBracket();
      case '<':
        return this.readAngle();
      case '&':
        return this.readEntity();
      case '\n':
        return this.push(el('br')), void ++this.at;
      case 'h':
        return this.readBareLink();
      default:
        return this.keep(1);
    }
  }

  keep(count) {
    this.plain += this.text.slice(this.at, this.at + count);
    this.at += count;
  }
  flush() {
    if (this.plain) this.out.push(document.createTextNode(this.plain));
    this.plain = '';
  }
  push(node) {
    this.flush();
    this.out.push(node);
  }

  // The place of the next closer, or Infinity: a text is searched once for each, however many open.
  nextCloser(name, from) {
    if (!(this.closers[name] >= from)) this.closers[name] = matchAt(kClosers[name], this.text, from)?.index ?? Infinity;
    return this.closers[name];
  }

  readEscape() {
    const {text, at} = this;
    const close = {'(': ')', '[': ']'}[text[at + 1]];
    const end = close ? this.nextCloser(close, at + 2) : Infinity;
    if (end - at < kMathLengthMax) {
      this.push(mathNode(text.slice(at + 2, end), close === ']'));
      this.at = end + 2;
    } else if (text[at + 1] === '\n') {
      this.push(el('br'));
      this.at += 2;
    } else if (/[!-/:-@[-`{-~]/.test(text[at + 1] ?? '')) {
      this.plain += text[at + 1];
      this.at += 2;
    } else {
      this.keep(1);
    }
  }

  readCode() {
    const run = /`+/y;
    const {0: ticks} = matchAt(run, this.text, this.at);
    if (!this.noRun.has(ticks.length)) {
      for (let from = this.at + ticks.length;;) {
        const end = this.text.indexOf(ticks, from);
        if (end < 0) break;
        const {0: found} = matchAt(run, this.text, end);
        if (found.length === ticks.length) {
          let code = this.text.slice(this.at + ticks.length, end).replaceAll('\n', ' ');
          if (code.startsWith(' ') && code.endsWith(' ') && /[^ ]/.test(code)) code = code.slice(1, -1);
          this.push(el('code', {}, code));
          this.at = end + ticks.length;
          return;
        }
        from = end + found.length;
      }
      this.noRun.add(ticks.length);
    }
    this.keep(ticks.length);
  }

  // $x$ where it cannot be a price: no space inside the dollars, no digit behind them.
  readDollar() {
    const {text, at} = this;
    const display = text[at + 1] === '$';
    const from = at + (display ? 2 : 1);
    if (!kSpace.test(text[from] ?? ' ')) {
      const end = this.nextCloser(display ? '$$' : '$', from + 1);
      const fits =
          end - from < kMathLengthMax && !kSpace.test(text[end - 1]) && (display || !/[0-9]/.test(text[end + 1] ?? ''));
      if (fits && !text.slice(from, end).includes('\n\n')) {
        this.push(mathNode(text.slice(from, end), display));
        this.at = end + (display ? 2 : 1);
        return;
      }
    }
    this.keep(display ? 2 : 1);
  }

  readAngle() {
    const found = matchAt(kAngleLink, this.text, this.at);
    const url = found && safeUrl(found[1]);
    if (url) {
      this.push(link(url, found[1].replace(/^mailto:/, '')));
      this.at += found[0].length;
    } else if (/^<br\s*\/?>/i.test(this.text.slice(this.at, this.at + 8))) {
      this.push(el('br'));
      this.at = this.text.indexOf('>', this.at) + 1;
    } else {
      this.keep(1);
    }
  }

  readEntity() {
    const found = matchAt(kEntity, this.text, this.at);
    if (!found) return this.keep(1);
    const code = found[1] ? Number(found[1]) : found[2] ? parseInt(found[2], 16) : null;
    const named = found[3] && Object.hasOwn(kEntities, found[3]) ? kEntities[found[3]] : null;
    if (code === null && named === null) return this.keep(1);
    this.plain += named ??
        (code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : '\ufffd');
    this.at += found[0].length;
  }

  readBareLink() {
    // Within a link's own words there is no other.
    const may = this.at >= this.linkFrom && this.brackets.length === 0 && !/\w/.test(this.text[this.at - 1] ?? ' ');
    const found = may && matchAt(kBareLink, this.text, this.at);
    if (!found) return this.keep(1);
    let length = found[0].length;
    while ('.,;:!?*_~]'.includes(found[0][length - 1])) --length;
    let shown = found[0].slice(0, length);
    if (shown.endsWith(')') && !shown.includes('(')) shown = shown.slice(0, -1);
    const url = safeUrl(shown);
    if (!url) {
      this.linkFrom = this.at + found[0].length;
      return this.keep(1);
    }
    this.push(link(url, shown));
    this.at += shown.length;
  }

  openBracket(count) {
    this.flush();
    this.brackets.push({place: this.out.length, image: count === 2});
    this.out.push(document.createTextNode(this.text.slice(this.at, this.at + count)));
    this.at += count;
  }

  closeBracket() {
    const open = this.brackets.pop();
    const target = open && matchAt(kTarget, this.text, this.at + 1);
    const url = target && safeUrl(target[1] ?? target[2]);
    if (!url) return this.keep(1);
    this.flush();
    const inside = this.nodes(open.place + 1);
    this.out.length = open.place;
    for (const places of Object.values(this.openers))
      while (places.at(-1) >= open.place) places.pop();
    const words = inside.length > 0 ? inside : [url];
    this.out.push(
        open.image ? el('span', {class: 'image-link'}, link(url, words, target[3] ?? target[4])) :
                     link(url, words, target[3] ?? target[4]));
    this.at += 1 + target[0].length;
  }

  // A run of * or _ or ~~ (CommonMark 6.2): what stands beside it says whether it opens or closes.
  readMark() {
    const {text, at} = this;
    const mark = text[at];
    let end = at;
    while (text[end] === mark) ++end;
    const before = text[at - 1] ?? ' ', after = text[end] ?? ' ';
    const left = !kSpace.test(after) && (!kPunctuation.test(after) || kSpace.test(before) || kPunctuation.test(before));
    const right =
        !kSpace.test(before) && (!kPunctuation.test(before) || kSpace.test(after) || kPunctuation.test(after));
    const opens = left && (mark !== '_' || !right || kPunctuation.test(before));
    const closes = right && (mark !== '_' || !left || kPunctuation.test(after));
    let count = end - at;
    this.at = end;
    if (mark === '~' && count !== 2) return void (this.plain += mark.repeat(count));
    this.flush();
    if (closes) count = this.close(mark, count, opens);
    if (count === 0) return;
    const node = document.createTextNode(mark.repeat(count));
    if (opens) this.openers[mark].push(this.out.length);
    this.out.push(opens ? {mark, count, node, closes} : node);
  }

  // Wraps what stands behind the openers of `mark`; returns how many marks are left.
  close(mark, count, opens) {
    const places = this.openers[mark];
    while (count > 0 && places.length > 0) {
      const opener = this.out[places.at(-1)];
      if ((opens || opener.closes) && (opener.count + count) % 3 === 0 && (opener.count % 3 !== 0 || count % 3 !== 0))
        break;
      const used = mark === '~' || (opener.count > 1 && count > 1) ? 2 : 1;
      const place = places.at(-1);
      const inside = this.nodes(place + 1);
      this.out.length = place + 1;
      for (const others of Object.values(this.openers))
        while (others.at(-1) > place) others.pop();
      while (this.brackets.at(-1)?.place > place) this.brackets.pop();
      opener.count -= used;
      count -= used;
      opener.node.data = mark.repeat(opener.count);
      if (opener.count === 0) {
        this.out.pop();
        places.pop();
      }
      this.out.push(el(mark === '~' ? 'del' : used === 2 ? 'strong' : 'em', {}, inside));
    }
    return count;
  }

  nodes(from) {
    return this.out.slice(from).map((item) => item.node ?? item);
  }
}

const inlineNodes = (text) => new InlineReader(text).read();

// --- Nodes ---

function codeFrame(language) {
  const view = new CodeView(language);
  const copy = iconButton('copy', t('copy'), async () => {
    await copyText(view.text);
    copy.classList.add('done');
    setTimeout(() => copy.classList.remove('done'), 1200);
  });
  const frame =
      el('div', {class: 'code'}, el('div', {class: 'code-head'}, el('span', {}, language || t('plainText')), copy),
         el('pre', {tabindex: '0', role: 'region', 'aria-label': language || t('plainText')}, view.node));
  return {frame, view};
}

function tableNode(block) {
  const columns = block.head.length;
  // One cell stands for all that a short row lacks: a row costs no more than its text.
  const rest = (count) => (count > 0 ? [el('td', {colspan: String(count)})] : []);
  const row = (cells, tag) => el(
      'tr', {},
      cells.slice(0, columns)
          .map(
              (cell, i) => el(
                  tag, {class: `align-${block.align[i] ?? 'start'}`, scope: tag === 'th' && 'col'}, inlineNodes(cell))),
      rest(columns - cells.length));
  return el(
      'div', {class: 'table', tabindex: '0', role: 'region', 'aria-label': t('table')},
      el('table', {}, el('thead', {}, row(block.head, 'th')),
         el('tbody', {}, block.rows.map((cells) => row(cells, 'td')))));
}

function itemNode(item, loose) {
  const nodes = item.blocks.flatMap(
      (block) => (block.kind === 'paragraph' && !loose ? inlineNodes(block.text) : [blockNode(block)]));
  if (!item.isTask) return el('li', {}, nodes);
  return el(
      'li', {class: 'task'},
      el('span',
         {class: `box ${item.task ? 'ticked' : ''}`, role: 'img', 'aria-label': item.task ? t('done') : t('open')}),
      el('div', {}, nodes));
}

function blockNode(block) {
  switch (block.kind) {
    case 'heading':
      return el(`h${Math.min(block.level + 2, 6)}`, {class: `h${block.level}`}, inlineNodes(block.text));
    case 'rule':
      return el('hr');
    case 'quote':
      return el('blockquote', {}, block.blocks.map(blockNode));
    case 'list':
      return el(
          block.start === null ? 'ul' : 'ol', {start: block.start !== null && block.start !== 1 && String(block.start)},
          block.items.map((item) => itemNode(item, block.loose)));
    case 'table':
      return tableNode(block);
    case 'math':
      return mathNode(block.text, true);
    case 'code': {  // within a list or a quote
      const {frame, view} = codeFrame(block.language);
      view.update(block.text);
      return frame;
    }
    default:
      return el('p', {}, inlineNodes(block.text));
  }
}

// A text that grows. A block that a whole line follows is made once; only what is behind it is made again,
// and of code only its last line: so an answer of any length costs the same for each word.
export class MarkdownView {
  constructor() {
    this.node = el('div', {class: 'markdown'});
    this.reset();
  }

  reset() {
    this.shown = '';
    this.kept = 0;   // where in the text the blocks begin that may yet change
    this.live = [];  // what is shown of them: {node, code, language}
    this.node.replaceChildren();
  }

  update(given) {
    const text = given.replace(kLineEnd, (end) => (end[0] === '\r' ? '\n' : ' '));
    if (text === this.shown) return;
    if (!text.startsWith(this.shown)) this.reset();
    this.shown = text;
    const lines = text.slice(this.kept).split('\n');
    const blocks = parseBlocks(lines);
    for (const gone of this.live.splice(blocks.length)) gone.node.remove();
    blocks.forEach((block, i) => this.show(block, i));
    // "1" may be the begin of "1. an item", which belongs to the list before.
    const settled = blocks.at(-1)?.first < lines.length - 1 ? 1 : 2;
    const first = Math.max(0, blocks.length - settled);
    for (let line = 0; line < (blocks[first]?.first ?? 0); ++line) this.kept += lines[line].length + 1;
    this.live.splice(0, first);
  }

  show(block, i) {
    const before = this.live[i];
    const {language} = block;
    if (block.kind === 'code' && before?.code && before.language === language) return before.code.update(block.text);
    const {frame: node, view: code = null} = block.kind === 'code' ? codeFrame(language) : {frame: blockNode(block)};
    code?.update(block.text);
    if (before)
      before.node.replaceWith(node);
    else
      this.node.append(node);
    this.live[i] = {node, code, language};
  }
}
