// Colours for code: one left-to-right lexer a family of languages, which knows comments, strings,
// numbers, words and calls. It goes on where it stopped, so that code that is still being written costs
// no more for its last line than for its first.
import {el} from './dom.js';

const set = (words) => new Set(words.split(' '));

// clang-format off
const kCWords = 'if else for while do switch case default break continue return goto sizeof struct union enum typedef static extern const volatile inline void char short int long float double signed unsigned bool true false nullptr NULL';
const kCppWords = `${kCWords} class public private protected virtual override final namespace using template typename auto constexpr consteval concept requires new delete this operator friend try catch throw noexcept static_cast reinterpret_cast const_cast dynamic_cast decltype mutable explicit co_await co_return co_yield size_t uint8_t int32_t int64_t uint32_t uint64_t string std __global__ __device__ __shared__ __host__`;
const kJsWords = 'const let var function return if else for while do switch case default break continue new delete typeof instanceof in of this class extends super import export from as async await yield try catch finally throw null undefined true false void static get set interface type enum implements declare namespace readonly public private protected abstract number string boolean any unknown never keyof satisfies';
const kPythonWords = 'def class return if elif else for while break continue pass import from as with try except finally raise lambda yield async await global nonlocal assert del in is not and or None True False self match case print';

// A row a language.
// Each: [words, comments, strings]; both in regular expressions, and what goes over lines ends at the text's end, too: (?![^]).
const kSlashes = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|(?![^]))`;
const kHash = String.raw`#[^\n]*`;
const kDashes = String.raw`--[^\n]*|\/\*[^]*?(?:\*\/|(?![^]))`;
const kQuotes = String.raw`"(?:\\.|[^"\\\n])*(?:"|(?=\n|$))|'(?:\\.|[^'\\\n])*(?:'|(?=\n|$))`;
const kTemplate = String.raw`\x60(?:\\[^]|[^\x60\\])*(?:\x60|(?![^]))`;
const kTriple = String.raw`[rbfuRBFU]{0,2}(?:"""[^]*?(?:"""|(?![^]))|'''[^]*?(?:'''|(?![^])))`;
const kChar = String.raw`"(?:\\[^]|[^"\\])*(?:"|(?![^]))|'(?:\\.[^'\n]{0,8}|[^'\\\n])'`;  // 'a is a lifetime in Rust

const kFamilies = {
  c: [kCWords, kSlashes, kQuotes, String.raw`^[ \t]*#[ \t]*\w+[^\n]*`],
  cpp: [kCppWords, kSlashes, kQuotes, String.raw`^[ \t]*#[ \t]*\w+[^\n]*`],
  java: ['abstract assert boolean break byte case catch char class const continue default do double else enum extends final finally float for if implements import instanceof int interface long native new package private protected public record return sealed short static super switch synchronized this throw throws transient try var void volatile while true false null yield String', kSlashes, kQuotes, String.raw`@\w+`],
  csharp: ['abstract as async await base bool break byte case catch char class const continue decimal default delegate do double else enum event explicit extern false finally fixed float for foreach get if implicit in int interface internal is lock long namespace new null object operator out override params private protected public readonly record ref return sbyte sealed set short sizeof static string struct switch this throw true try typeof uint ulong unchecked unsafe using var virtual void volatile when where while yield', kSlashes, `[@$]*(?:${kQuotes})`],
  js: [kJsWords, kSlashes, `${kQuotes}|${kTemplate}`, String.raw`@\w+`],
  go: ['break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var true false nil int int64 int32 uint8 byte rune string bool error float64 float32 any make len append', kSlashes, `${kQuotes}|${kTemplate}`],
  rust: ['as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while i8 i16 i32 i64 u8 u16 u32 u64 usize isize f32 f64 bool char str String Vec Option Result Some None Ok Err Box', kSlashes, kChar, String.raw`#!?\[[^\]\n]*\]`],
  kotlin: ['as break class continue data do else false for fun if import in interface is null object override package private protected public return sealed suspend super this throw true try typealias val var when while companion init lateinit by', kSlashes, kQuotes, String.raw`@\w+`],
  swift: ['as associatedtype async await break case catch class continue default defer deinit do else enum extension false fileprivate for func guard if import in init inout internal is let nil open operator private protocol public repeat return self Self static struct subscript super switch throw throws true try typealias var where while Int String Double Bool', kSlashes, kQuotes, String.raw`@\w+`],
  php: ['abstract and array as break callable case catch class clone const continue declare default do echo else elseif extends final finally fn for foreach function global if implements include instanceof interface isset list match namespace new null or print private protected public readonly require return static switch throw trait true false try use var while yield', `${kSlashes}|${kHash}`, kQuotes, String.raw`\$\w+|<\?php|\?>`],
  python: [kPythonWords, kHash, `${kTriple}|[rbfuRBFU]{0,2}(?:${kQuotes})`, String.raw`@[\w.]+`],
  ruby: ['alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require attr_accessor puts', kHash, kQuotes, String.raw`@{1,2}\w+|:\w+`],
  shell: ['if then elif else fi for in do done while until case esac function return local export readonly declare set unset shift exit source echo cd sudo trap eval exec read printf true false', String.raw`(?<![^\s;])#[^\n]*`, kQuotes, String.raw`\$\{[^}\n]*\}|\$[\w@#?*!-]+|(?<=\s)--?[a-zA-Z][\w-]*`],
  sql: ['select from where and or not null is in like between join left right inner outer full cross on group by order having limit offset union all distinct as insert into values update set delete create table index view drop alter add column primary key foreign references unique default check constraint case when then else end exists with recursive over partition asc desc int integer bigint varchar text boolean date timestamp numeric true false count sum avg min max coalesce', kDashes, kQuotes],
  lua: ['and break do else elseif end false for function goto if in local nil not or repeat return then true until while', String.raw`--\[\[[^]*?(?:\]\]|(?![^]))|--[^\n]*`, kQuotes],
  r: ['if else for while repeat function return next break TRUE FALSE NULL NA Inf NaN library require in', kHash, kQuotes],
  haskell: ['case class data default deriving do else foreign if import in infix infixl infixr instance let module newtype of then type where qualified as hiding forall Int Integer String Bool Maybe Either IO', String.raw`--[^\n]*|\{-[^]*?(?:-\}|(?![^]))`, kChar],
  yaml: ['true false null yes no on off', String.raw`(?<![^\s])#[^\n]*`, kQuotes, String.raw`^[ \t]*(?:- )*[\w."'\/-]+(?=:(?:\s|(?![^])))|[&*]\w+`],
  toml: ['true false', String.raw`[#;][^\n]*`, `"""[^]*?(?:"""|(?![^]))|${kQuotes}`, String.raw`^[ \t]*\[[^\n]*\]|^[ \t]*[\w."-]+(?=[ \t]*=)`],
  json: ['true false null', kSlashes, kQuotes],
  css: ['important inherit initial none auto flex grid block inline absolute relative fixed sticky solid var calc rgb rgba', String.raw`\/\*[^]*?(?:\*\/|(?![^]))`, kQuotes, String.raw`@[\w-]+|--[\w-]+|(?<![\w-])[\w-]+(?=\s{0,99}:[^{};]{0,400}[;}])|#[\da-fA-F]{3,8}\b`],
  make: ['ifeq ifneq ifdef ifndef else endif include define endef export', kHash, kQuotes, String.raw`^[\w.%\/-]+(?=:)|\$[({]\w+[)}]|\$[@<^*]`],
  cmake: ['if else elseif endif foreach endforeach function endfunction macro endmacro set option project include add_library add_executable target_link_libraries find_package ON OFF TRUE FALSE PUBLIC PRIVATE INTERFACE', kHash, kQuotes, String.raw`\$\{\w+\}`],
  docker: ['FROM RUN CMD LABEL EXPOSE ENV ADD COPY ENTRYPOINT VOLUME USER WORKDIR ARG ONBUILD HEALTHCHECK SHELL AS', kHash, kQuotes, String.raw`\$\{?\w+\}?`],
};

const kNames = {
  c: 'c h', cpp: 'cpp c++ cc cxx hpp hh cuda cu glsl metal opencl arduino', java: 'java scala groovy dart', csharp: 'cs csharp c#',
  js: 'js javascript jsx ts typescript tsx mjs node vue svelte', go: 'go golang', rust: 'rust rs', kotlin: 'kotlin kt', swift: 'swift objc',
  php: 'php', python: 'python py python3 pycon jupyter starlark', ruby: 'ruby rb', shell: 'sh bash shell zsh fish console terminal powershell ps1 bat',
  sql: 'sql mysql postgresql postgres sqlite plsql', lua: 'lua', r: 'r', haskell: 'haskell hs elm ocaml ml', yaml: 'yaml yml',
  toml: 'toml ini conf cfg properties env', json: 'json jsonc json5 jsonl', css: 'css scss less', make: 'make makefile', cmake: 'cmake', docker: 'dockerfile docker',
};
// clang-format on
const kFamilyOf =
    new Map(Object.entries(kNames).flatMap(([family, names]) => names.split(' ').map((name) => [name, family])));

const kNumber =
    String
        .raw`(?<![\w.])(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[uUlLfFn]{0,3}(?!\w)`;
const kWord = String.raw`[\p{L}_$][\p{L}\p{N}_$]*`;
const kMarkup = [
  ['comment', String.raw`<!--[^]*?(?:-->|(?![^]))`],
  ['special', String.raw`<!\w[^>\n]*>|&[#\w]{1,12};`],
  ['keyword', String.raw`<\/?[\w:-]+|\/?>`],
  ['string', `(?<==)(?:${kQuotes})`],
  ['name', String.raw`(?<=\s)[\w:@.-]+(?=\s*=)`],
];
const kDiff = [
  ['special', String.raw`^@@[^\n]*|^(?:diff|index|---|\+\+\+)[^\n]*`], ['added', String.raw`^\+[^\n]*`],
  ['removed', String.raw`^-[^\n]*`]
];

function lexerOf(rules, words, ignoreCase) {
  return {
    classes: rules.map(([name]) => name),
    words,
    ignoreCase,
    pattern: new RegExp(rules.map(([, source]) => `(${source})`).join('|'), 'gmu')
  };
}

const lexers = new Map();

function lexerFor(language) {
  const name = ['html', 'xml', 'svg', 'xhtml', 'htm', 'vue', 'jinja'].includes(language) ? 'markup' :
      ['diff', 'patch'].includes(language)                                               ? 'diff' :
                                                                                           kFamilyOf.get(language);
  if (!name) return null;
  if (!lexers.has(name)) {
    let made;
    if (name === 'markup')
      made = lexerOf(kMarkup);
    else if (name === 'diff')
      made = lexerOf(kDiff);
    else {
      const [words, comment, string, special] = kFamilies[name];
      const rules = [['comment', comment], ['string', string]];
      if (special) rules.push(['special', special]);
      // In JSON what stands before a colon is a name.
      if (name === 'json') rules.splice(1, 0, ['name', String.raw`"(?:\\.|[^"\\\n])*"(?=\s*:)`]);
      rules.push(['number', kNumber], ['word', kWord]);
      made = lexerOf(rules, set(words), name === 'sql' || name === 'docker');
      if (name === 'docker') made.words = set(words.toLowerCase());
    }
    lexers.set(name, made);
  }
  return lexers.get(name);
}

function classOfWord(lexer, word, text, end) {
  if (lexer.words.has(lexer.ignoreCase ? word.toLowerCase() : word)) return 'keyword';
  if (text[end] === '(') return 'call';
  return /^[A-Z][A-Za-z0-9]*[a-z]/.test(word) ? 'type' : '';
}

// [class, begin, end] of what is coloured, from `from` on, which must be no token's middle.
export function tokensOf(text, language, from = 0) {
  const lexer = lexerFor(language);
  if (!lexer) return [];
  const tokens = [];
  const {pattern} = lexer;
  pattern.lastIndex = from;
  for (let found; (found = pattern.exec(text));) {
    if (found[0] === '') {
      ++pattern.lastIndex;
      continue;
    }
    const group = found.findIndex((part, i) => i > 0 && part !== undefined) - 1;
    const end = found.index + found[0].length;
    const kind = lexer.classes[group] === 'word' ? classOfWord(lexer, found[0], text, end) : lexer.classes[group];
    if (kind) tokens.push([kind, found.index, end]);
  }
  return tokens;
}

const kChunkLines = 40;

// Where the first chunk of lines behind `from` ends, on no token's middle; null where too little is there.
function chunkEnd(text, tokens, from) {
  let end = from;
  for (let line = 0; line < kChunkLines; ++line) {
    end = text.indexOf('\n', end) + 1;
    if (end === 0) return null;
  }
  const across = tokens.find(([, begin, stop]) => begin < end && stop > end);
  if (across) end = text.indexOf('\n', across[2]) + 1;
  return end > 0 && end < text.length ? end : null;
}

// Code that grows: lines that are whole for long are coloured once, and laid out once, as each chunk is a box of its
// own.
export class CodeView {
  constructor(language) {
    this.language = language;
    this.node = el('code', {});
    this.reset();
  }

  reset() {
    this.text = '';
    this.base = 0;    // where what may yet change begins
    this.chunks = 0;  // boxes before it
    this.node.replaceChildren();
  }

  update(text) {
    if (text === this.text) return;
    if (!text.startsWith(this.text.slice(0, this.base))) this.reset();
    this.text = text;
    while (this.node.childNodes.length > this.chunks) this.node.lastChild.remove();
    const tokens = tokensOf(text, this.language, this.base);
    for (let end; (end = chunkEnd(text, tokens, this.base)) !== null; ++this.chunks) {
      this.node.append(el('span', {class: 'lines'}, this.nodesTo(end, tokens)));
      this.base = end;
    }
    this.node.append(...this.nodesTo(text.length, tokens));
  }

  // From this.base on. Takes what it shows from the front of `tokens`.
  nodesTo(end, tokens) {
    const nodes = [];
    let at = this.base, count = 0;
    for (; count < tokens.length && tokens[count][2] <= end; ++count) {
      const [kind, begin, stop] = tokens[count];
      nodes.push(this.text.slice(at, begin), el('span', {class: `hl-${kind}`}, this.text.slice(begin, stop)));
      at = stop;
    }
    tokens.splice(0, count);
    nodes.push(this.text.slice(at, end));
    return nodes.filter(Boolean);
  }
}
