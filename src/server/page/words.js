// What the page says, in ten languages: a row a text, a column a language.
import {memory} from './dom.js';

export const kLanguages = [
  ['en', 'English'], ['de', 'Deutsch'], ['fr', 'Français'], ['es', 'Español'], ['pt', 'Português'], ['it', 'Italiano'],
  ['ru', 'Русский'], ['zh', '中文'], ['ja', '日本語'], ['ko', '한국어']
];

const kCodes = kLanguages.map(([code]) => code);

export const language = [memory.get('language'), ...(navigator.languages ?? [])]
                            .map((each) => String(each).slice(0, 2))
                            .find((each) => kCodes.includes(each)) ??
    'en';

const kColumn = kCodes.indexOf(language);

// {name} is filled in.
// clang-format off
export const kWords = {
  // Parts of the page
  conversation: ['Conversation', 'Gespräch', 'Conversation', 'Conversación', 'Conversa', 'Conversazione', 'Беседа', '对话', '会話', '대화'],
  conversations: ['Conversations', 'Gespräche', 'Conversations', 'Conversaciones', 'Conversas', 'Conversazioni', 'Беседы', '对话', '会話', '대화'],
  newChat: ['New chat', 'Neues Gespräch', 'Nouvelle conversation', 'Nuevo chat', 'Nova conversa', 'Nuova chat', 'Новая беседа', '新对话', '新しい会話', '새 대화'],
  dashboard: ['Dashboard', 'Übersicht', 'Tableau de bord', 'Panel', 'Painel', 'Pannello', 'Панель', '仪表板', 'ダッシュボード', '대시보드'],
  settings: ['Settings', 'Einstellungen', 'Réglages', 'Ajustes', 'Configurações', 'Impostazioni', 'Настройки', '设置', '設定', '설정'],
  search: ['Search', 'Suchen', 'Rechercher', 'Buscar', 'Pesquisar', 'Cerca', 'Поиск', '搜索', '検索', '검색'],
  shortcuts: ['Keyboard shortcuts', 'Tastenkürzel', 'Raccourcis clavier', 'Atajos de teclado', 'Atalhos de teclado', 'Scorciatoie da tastiera', 'Сочетания клавиш', '键盘快捷键', 'キーボードショートカット', '단축키'],
  files: ['Files', 'Dateien', 'Fichiers', 'Archivos', 'Arquivos', 'File', 'Файлы', '文件', 'ファイル', '파일'],
  table: ['Table', 'Tabelle', 'Tableau', 'Tabla', 'Tabela', 'Tabella', 'Таблица', '表格', '表', '표'],
  plainText: ['text', 'Text', 'texte', 'texto', 'texto', 'testo', 'текст', '文本', 'テキスト', '텍스트'],
  title: ['Title', 'Titel', 'Titre', 'Título', 'Título', 'Titolo', 'Название', '标题', 'タイトル', '제목'],
  untitled: ['Untitled', 'Ohne Titel', 'Sans titre', 'Sin título', 'Sem título', 'Senza titolo', 'Без названия', '无标题', '無題', '제목 없음'],
  model: ['Model', 'Modell', 'Modèle', 'Modelo', 'Modelo', 'Modello', 'Модель', '模型', 'モデル', '모델'],
  version: ['Version', 'Version', 'Version', 'Versión', 'Versão', 'Versione', 'Версия', '版本', 'バージョン', '버전'],
  // The conversation
  greeting: ['What shall we work on?', 'Woran arbeiten wir?', 'Sur quoi travaillons-nous ?', '¿En qué trabajamos?', 'Em que vamos trabalhar?', 'Su cosa lavoriamo?', 'Над чем поработаем?', '我们来做点什么？', '何に取り組みましょうか？', '무엇을 해 볼까요?'],
  suggestExplain: ['Explain why the sky is blue, in three sentences.', 'Erkläre in drei Sätzen, warum der Himmel blau ist.', 'Explique en trois phrases pourquoi le ciel est bleu.', 'Explica en tres frases por qué el cielo es azul.', 'Explique em três frases por que o céu é azul.', 'Spiega in tre frasi perché il cielo è blu.', 'Объясни в трёх предложениях, почему небо голубое.', '用三句话解释天空为什么是蓝色的。', '空が青い理由を三文で説明してください。', '하늘이 파란 이유를 세 문장으로 설명해 줘.'],
  suggestCode: ['Write a Python function that checks whether a word is a palindrome.', 'Schreibe eine Python-Funktion, die prüft, ob ein Wort ein Palindrom ist.', 'Écris une fonction Python qui vérifie si un mot est un palindrome.', 'Escribe una función de Python que compruebe si una palabra es un palíndromo.', 'Escreva uma função em Python que verifique se uma palavra é um palíndromo.', 'Scrivi una funzione Python che controlli se una parola è un palindromo.', 'Напиши на Python функцию, которая проверяет, палиндром ли слово.', '写一个判断单词是否为回文的 Python 函数。', '単語が回文かどうかを調べる Python 関数を書いてください。', '단어가 회문인지 확인하는 Python 함수를 작성해 줘.'],
  suggestWrite: ['Write a short, friendly reminder about a meeting tomorrow.', 'Schreibe eine kurze, freundliche Erinnerung an ein Treffen morgen.', 'Écris un rappel court et aimable pour une réunion demain.', 'Escribe un recordatorio breve y amable de una reunión mañana.', 'Escreva um lembrete curto e simpático de uma reunião amanhã.', 'Scrivi un promemoria breve e gentile per una riunione domani.', 'Напиши короткое дружелюбное напоминание о встрече завтра.', '写一则简短友好的明日会议提醒。', '明日の会議について短く丁寧なリマインダーを書いてください。', '내일 회의를 알리는 짧고 친근한 메시지를 써 줘.'],
  suggestTable: ['Compare three sorting algorithms in a table.', 'Vergleiche drei Sortierverfahren in einer Tabelle.', 'Compare trois algorithmes de tri dans un tableau.', 'Compara tres algoritmos de ordenación en una tabla.', 'Compare três algoritmos de ordenação em uma tabela.', 'Confronta tre algoritmi di ordinamento in una tabella.', 'Сравни три алгоритма сортировки в таблице.', '用表格比较三种排序算法。', '三つのソートアルゴリズムを表で比較してください。', '정렬 알고리즘 세 가지를 표로 비교해 줘.'],
  message: ['Message', 'Nachricht', 'Message', 'Mensaje', 'Mensagem', 'Messaggio', 'Сообщение', '消息', 'メッセージ', '메시지'],
  messageHint: ['Write a message', 'Nachricht schreiben', 'Écrire un message', 'Escribe un mensaje', 'Escreva uma mensagem', 'Scrivi un messaggio', 'Напишите сообщение', '输入消息', 'メッセージを入力', '메시지를 입력하세요'],
  mistakes: ['Models make mistakes. Conversations stay in this browser.', 'Modelle machen Fehler. Gespräche bleiben in diesem Browser.', 'Les modèles se trompent. Les conversations restent dans ce navigateur.', 'Los modelos se equivocan. Las conversaciones quedan en este navegador.', 'Modelos erram. As conversas ficam neste navegador.', 'I modelli sbagliano. Le conversazioni restano in questo browser.', 'Модели ошибаются. Беседы хранятся в этом браузере.', '模型可能出错。对话保存在此浏览器中。', 'モデルは間違えることがあります。会話はこのブラウザーに保存されます。', '모델은 실수할 수 있습니다. 대화는 이 브라우저에 저장됩니다.'],
  you: ['You', 'Sie', 'Vous', 'Tú', 'Você', 'Tu', 'Вы', '你', 'あなた', '나'],
  assistant: ['Assistant', 'Assistent', 'Assistant', 'Asistente', 'Assistente', 'Assistente', 'Ассистент', '助手', 'アシスタント', '어시스턴트'],
  send: ['Send', 'Senden', 'Envoyer', 'Enviar', 'Enviar', 'Invia', 'Отправить', '发送', '送信', '보내기'],
  stop: ['Stop', 'Anhalten', 'Arrêter', 'Detener', 'Parar', 'Ferma', 'Остановить', '停止', '停止', '중지'],
  stopFirst: ['Stop the answer first', 'Erst die Antwort anhalten', 'Arrêtez d’abord la réponse', 'Detén antes la respuesta', 'Pare a resposta primeiro', 'Prima ferma la risposta', 'Сначала остановите ответ', '请先停止回答', '先に回答を停止してください', '먼저 답변을 중지하세요'],
  regenerate: ['Answer again', 'Neu antworten', 'Répondre à nouveau', 'Responder de nuevo', 'Responder de novo', 'Rispondi di nuovo', 'Ответить заново', '重新回答', '再生成', '다시 답변'],
  goOn: ['Continue', 'Fortsetzen', 'Continuer', 'Continuar', 'Continuar', 'Continua', 'Продолжить', '继续', '続ける', '계속'],
  edit: ['Edit', 'Bearbeiten', 'Modifier', 'Editar', 'Editar', 'Modifica', 'Изменить', '编辑', '編集', '편집'],
  copy: ['Copy', 'Kopieren', 'Copier', 'Copiar', 'Copiar', 'Copia', 'Копировать', '复制', 'コピー', '복사'],
  copied: ['Copied', 'Kopiert', 'Copié', 'Copiado', 'Copiado', 'Copiato', 'Скопировано', '已复制', 'コピーしました', '복사됨'],
  remove: ['Delete', 'Löschen', 'Supprimer', 'Eliminar', 'Excluir', 'Elimina', 'Удалить', '删除', '削除', '삭제'],
  removed: ['Deleted', 'Gelöscht', 'Supprimé', 'Eliminado', 'Excluído', 'Eliminato', 'Удалено', '已删除', '削除しました', '삭제됨'],
  undo: ['Undo', 'Rückgängig', 'Annuler', 'Deshacer', 'Desfazer', 'Annulla', 'Вернуть', '撤销', '元に戻す', '실행 취소'],
  branches: ['Branches', 'Zweige', 'Branches', 'Ramas', 'Ramos', 'Rami', 'Ветви', '分支', '分岐', '분기'],
  branchBefore: ['Previous branch', 'Voriger Zweig', 'Branche précédente', 'Rama anterior', 'Ramo anterior', 'Ramo precedente', 'Предыдущая ветвь', '上一分支', '前の分岐', '이전 분기'],
  branchAfter: ['Next branch', 'Nächster Zweig', 'Branche suivante', 'Rama siguiente', 'Próximo ramo', 'Ramo successivo', 'Следующая ветвь', '下一分支', '次の分岐', '다음 분기'],
  save: ['Save', 'Speichern', 'Enregistrer', 'Guardar', 'Salvar', 'Salva', 'Сохранить', '保存', '保存', '저장'],
  saved: ['Saved', 'Gespeichert', 'Enregistré', 'Guardado', 'Salvo', 'Salvato', 'Сохранено', '已保存', '保存しました', '저장됨'],
  saveAndSend: ['Send', 'Senden', 'Envoyer', 'Enviar', 'Enviar', 'Invia', 'Отправить', '发送', '送信', '보내기'],
  saveBranch: ['Save as branch', 'Als Zweig speichern', 'Enregistrer comme branche', 'Guardar como rama', 'Salvar como ramo', 'Salva come ramo', 'Сохранить как ветвь', '另存为分支', '分岐として保存', '분기로 저장'],
  cancel: ['Cancel', 'Abbrechen', 'Annuler', 'Cancelar', 'Cancelar', 'Annulla', 'Отмена', '取消', 'キャンセル', '취소'],
  close: ['Close', 'Schließen', 'Fermer', 'Cerrar', 'Fechar', 'Chiudi', 'Закрыть', '关闭', '閉じる', '닫기'],
  go: ['OK', 'OK', 'OK', 'OK', 'OK', 'OK', 'ОК', '确定', 'OK', '확인'],
  tryAgain: ['Try again', 'Noch einmal', 'Réessayer', 'Reintentar', 'Tentar de novo', 'Riprova', 'Повторить', '重试', '再試行', '다시 시도'],
  toEnd: ['To the end', 'Zum Ende', 'Aller à la fin', 'Ir al final', 'Ir para o fim', 'Vai alla fine', 'В конец', '到底部', '最後へ', '맨 아래로'],
  attach: ['Attach text files', 'Textdateien anhängen', 'Joindre des fichiers texte', 'Adjuntar archivos de texto', 'Anexar arquivos de texto', 'Allega file di testo', 'Прикрепить текстовые файлы', '附加文本文件', 'テキストファイルを添付', '텍스트 파일 첨부'],
  fileTooLarge: ['{name} is too large', '{name} ist zu groß', '{name} est trop volumineux', '{name} es demasiado grande', '{name} é grande demais', '{name} è troppo grande', 'Файл {name} слишком большой', '{name} 过大', '{name} は大きすぎます', '{name} 파일이 너무 큽니다'],
  fileIsNoText: ['{name} is not a text file in UTF-8', '{name} ist keine Textdatei in UTF-8', '{name} n’est pas un texte en UTF-8', '{name} no es texto en UTF-8', '{name} não é texto em UTF-8', '{name} non è testo in UTF-8', '{name} — не текст в UTF-8', '{name} 不是 UTF-8 文本', '{name} は UTF-8 のテキストではありません', '{name} 파일은 UTF-8 텍스트가 아닙니다'],
  tooManyFiles: ['At most {n} files', 'Höchstens {n} Dateien', 'Au plus {n} fichiers', 'Como máximo {n} archivos', 'No máximo {n} arquivos', 'Al massimo {n} file', 'Не больше {n} файлов', '最多 {n} 个文件', 'ファイルは {n} 個までです', '파일은 최대 {n}개입니다'],
  characterCount: ['{n} characters', '{n} Zeichen', '{n} caractères', '{n} caracteres', '{n} caracteres', '{n} caratteri', '{n} знаков', '{n} 字符', '{n} 文字', '{n}자'],
  thinking: ['Thinking…', 'Denkt nach …', 'Réflexion…', 'Pensando…', 'Pensando…', 'Sta pensando…', 'Размышляет…', '思考中…', '考え中…', '생각 중…'],
  thoughts: ['Thoughts', 'Gedanken', 'Réflexion', 'Pensamientos', 'Pensamentos', 'Pensieri', 'Размышления', '思考', '思考', '생각'],
  thoughtFor: ['Thought for {seconds} s', '{seconds} s nachgedacht', 'A réfléchi {seconds} s', 'Pensó {seconds} s', 'Pensou por {seconds} s', 'Ha pensato {seconds} s', 'Размышлял {seconds} с', '思考了 {seconds} 秒', '{seconds} 秒考えました', '{seconds}초 동안 생각함'],
  waitingForAnswer: ['Waiting for the answer', 'Wartet auf die Antwort', 'En attente de la réponse', 'Esperando la respuesta', 'Aguardando a resposta', 'In attesa della risposta', 'Ожидание ответа', '等待回答', '回答を待っています', '답변 대기 중'],
  answering: ['Answering', 'Antwortet', 'Réponse en cours', 'Respondiendo', 'Respondendo', 'Sta rispondendo', 'Отвечает', '正在回答', '回答中', '답변 중'],
  answered: ['Answer:', 'Antwort:', 'Réponse :', 'Respuesta:', 'Resposta:', 'Risposta:', 'Ответ:', '回答：', '回答：', '답변:'],
  stopped: ['stopped', 'angehalten', 'arrêté', 'detenido', 'parado', 'fermato', 'остановлено', '已停止', '停止', '중지됨'],
  cutOff: ['The answer was cut off', 'Die Antwort wurde abgeschnitten', 'La réponse a été interrompue', 'La respuesta se cortó', 'A resposta foi interrompida', 'La risposta è stata interrotta', 'Ответ оборвался', '回答中断了', '回答が途中で切れました', '답변이 중간에 끊겼습니다'],
  cutByLength: ['cut by its length', 'am Längenlimit beendet', 'coupé à la longueur maximale', 'cortado por longitud', 'cortado pelo tamanho', 'troncato per lunghezza', 'обрезано по длине', '因长度截断', '長さで打ち切り', '길이 제한으로 잘림'],
  tokensPerSecond: ['{n} tok/s', '{n} Tok/s', '{n} tok/s', '{n} tok/s', '{n} tok/s', '{n} tok/s', '{n} ток/с', '{n} 词元/秒', '{n} トークン/秒', '{n} 토큰/초'],
  tokenCount: ['{n} tokens', '{n} Tokens', '{n} tokens', '{n} tokens', '{n} tokens', '{n} token', '{n} токенов', '{n} 词元', '{n} トークン', '{n} 토큰'],
  firstToken: ['first after {n} s', 'erstes nach {n} s', 'premier après {n} s', 'primero tras {n} s', 'primeiro após {n} s', 'primo dopo {n} s', 'первый через {n} с', '首词元 {n} 秒', '最初まで {n} 秒', '첫 토큰 {n}초'],
  cachedTokens: ['{n} from the cache', '{n} aus dem Cache', '{n} du cache', '{n} de la caché', '{n} do cache', '{n} dalla cache', '{n} из кэша', '缓存 {n}', 'キャッシュ {n}', '캐시 {n}'],
  toolCall: ['Tool call', 'Werkzeugaufruf', 'Appel d’outil', 'Llamada a herramienta', 'Chamada de ferramenta', 'Chiamata di strumento', 'Вызов инструмента', '工具调用', 'ツール呼び出し', '도구 호출'],
  toolResult: ['Tool result', 'Ergebnis des Werkzeugs', 'Résultat de l’outil', 'Resultado de la herramienta', 'Resultado da ferramenta', 'Risultato dello strumento', 'Результат инструмента', '工具结果', 'ツールの結果', '도구 결과'],
  toolResultHint: ['What the tool answers', 'Was das Werkzeug antwortet', 'Ce que répond l’outil', 'Lo que responde la herramienta', 'O que a ferramenta responde', 'Cosa risponde lo strumento', 'Что отвечает инструмент', '工具的回答', 'ツールの返答', '도구의 응답'],
  sendResult: ['Send result', 'Ergebnis senden', 'Envoyer le résultat', 'Enviar resultado', 'Enviar resultado', 'Invia risultato', 'Отправить результат', '发送结果', '結果を送信', '결과 보내기'],
  done: ['done', 'erledigt', 'fait', 'hecho', 'feito', 'fatto', 'готово', '完成', '完了', '완료'],
  open: ['open', 'offen', 'à faire', 'pendiente', 'aberto', 'da fare', 'не готово', '未完成', '未完了', '미완료'],
  probabilities: ['Probabilities', 'Wahrscheinlichkeiten', 'Probabilités', 'Probabilidades', 'Probabilidades', 'Probabilità', 'Вероятности', '概率', '確率', '확률'],
  probabilitiesLabel: ['Tokens with their probabilities; arrow keys go through them', 'Tokens mit ihren Wahrscheinlichkeiten; Pfeiltasten gehen durch sie', 'Tokens et probabilités ; les flèches les parcourent', 'Tokens con sus probabilidades; recórrelos con las flechas', 'Tokens com probabilidades; use as setas', 'Token con probabilità; scorrili con le frecce', 'Токены с вероятностями; переход стрелками', '词元及其概率；用方向键浏览', 'トークンと確率。矢印キーで移動', '토큰과 확률; 화살표 키로 이동'],
  likely: ['likely', 'wahrscheinlich', 'probable', 'probable', 'provável', 'probabile', 'вероятно', '高', '高い', '높음'],
  unlikely: ['unlikely', 'unwahrscheinlich', 'improbable', 'improbable', 'improvável', 'improbabile', 'маловероятно', '低', '低い', '낮음'],
  // Settings
  systemPrompt: ['System prompt', 'Systemprompt', 'Invite système', 'Instrucciones del sistema', 'Prompt de sistema', 'Prompt di sistema', 'Системный промпт', '系统提示词', 'システムプロンプト', '시스템 프롬프트'],
  systemHint: ['How the model should behave', 'Wie sich das Modell verhalten soll', 'Comment le modèle doit se comporter', 'Cómo debe comportarse el modelo', 'Como o modelo deve se comportar', 'Come deve comportarsi il modello', 'Как должна вести себя модель', '模型应如何表现', 'モデルの振る舞い', '모델이 어떻게 행동해야 하는지'],
  sampling: ['Sampling', 'Sampling', 'Échantillonnage', 'Muestreo', 'Amostragem', 'Campionamento', 'Сэмплирование', '采样', 'サンプリング', '샘플링'],
  reset: ['Reset', 'Zurücksetzen', 'Réinitialiser', 'Restablecer', 'Redefinir', 'Ripristina', 'Сбросить', '重置', 'リセット', '초기화'],
  auto: ['auto', 'auto', 'auto', 'auto', 'auto', 'auto', 'авто', '自动', '自動', '자동'],
  more: ['More', 'Mehr', 'Plus', 'Más', 'Mais', 'Altro', 'Ещё', '更多', 'その他', '더 보기'],
  temperature: ['Temperature', 'Temperatur', 'Température', 'Temperatura', 'Temperatura', 'Temperatura', 'Температура', '温度', '温度', '온도'],
  temperature_hint: ['0: always the likeliest token', '0: immer das wahrscheinlichste Token', '0 : toujours le token le plus probable', '0: siempre el token más probable', '0: sempre o token mais provável', '0: sempre il token più probabile', '0: всегда самый вероятный токен', '0：总取最可能的词元', '0：常に最も確率の高いトークン', '0: 항상 가장 확률이 높은 토큰'],
  top_p: ['Top p', 'Top p', 'Top p', 'Top p', 'Top p', 'Top p', 'Top p', 'Top p', 'Top p', 'Top p'],
  top_p_hint: ['The likeliest tokens that make up so much', 'Die wahrscheinlichsten, die zusammen so viel ausmachen', 'Les plus probables jusqu’à cette somme', 'Los más probables hasta esa suma', 'Os mais prováveis até essa soma', 'I più probabili fino a questa somma', 'Самые вероятные до этой суммы', '累计概率达到此值的词元', '累積確率がこの値までのトークン', '누적 확률이 이 값까지인 토큰'],
  top_k: ['Top k', 'Top k', 'Top k', 'Top k', 'Top k', 'Top k', 'Top k', 'Top k', 'Top k', 'Top k'],
  top_k_hint: ['Only the k likeliest tokens; 0: all', 'Nur die k wahrscheinlichsten; 0: alle', 'Les k plus probables ; 0 : tous', 'Solo los k más probables; 0: todos', 'Só os k mais prováveis; 0: todos', 'Solo i k più probabili; 0: tutti', 'Только k самых вероятных; 0: все', '只取前 k 个；0：全部', '上位 k 個のみ。0：すべて', '상위 k개만; 0: 전부'],
  min_p: ['Min p', 'Min p', 'Min p', 'Min p', 'Min p', 'Min p', 'Min p', 'Min p', 'Min p', 'Min p'],
  min_p_hint: ['At least this share of the likeliest token', 'Mindestens dieser Anteil des wahrscheinlichsten', 'Au moins cette part du plus probable', 'Al menos esta parte del más probable', 'Ao menos esta parte do mais provável', 'Almeno questa quota del più probabile', 'Не меньше этой доли от самого вероятного', '不低于最可能词元的此比例', '最有力トークンに対する最小比率', '가장 유력한 토큰 대비 최소 비율'],
  max_tokens: ['Max. tokens', 'Max. Tokens', 'Tokens max.', 'Tokens máx.', 'Máx. de tokens', 'Token max.', 'Макс. токенов', '最大词元数', '最大トークン数', '최대 토큰'],
  max_tokens_hint: ['The longest answer', 'Die längste Antwort', 'La réponse la plus longue', 'La respuesta más larga', 'A resposta mais longa', 'La risposta più lunga', 'Самый длинный ответ', '回答的最大长度', '回答の最大長', '답변의 최대 길이'],
  max_tokens_none: ['to the end', 'bis zum Ende', 'jusqu’à la fin', 'hasta el final', 'até o fim', 'fino alla fine', 'до конца', '不限', '最後まで', '끝까지'],
  seed: ['Seed', 'Startwert', 'Graine', 'Semilla', 'Semente', 'Seme', 'Зерно', '随机种子', 'シード', '시드'],
  seed_hint: ['The same seed gives the same answer', 'Derselbe Startwert gibt dieselbe Antwort', 'La même graine donne la même réponse', 'La misma semilla da la misma respuesta', 'A mesma semente dá a mesma resposta', 'Lo stesso seme dà la stessa risposta', 'Одно зерно — один ответ', '相同种子得到相同回答', '同じシードなら同じ回答', '같은 시드는 같은 답변'],
  seed_none: ['random', 'zufällig', 'aléatoire', 'aleatoria', 'aleatória', 'casuale', 'случайное', '随机', 'ランダム', '무작위'],
  repetition_penalty: ['Repetition', 'Wiederholung', 'Répétition', 'Repetición', 'Repetição', 'Ripetizione', 'Повторы', '重复惩罚', '繰り返し', '반복'],
  repetition_penalty_hint: ['Over 1: what was there becomes less likely', 'Über 1: was schon dastand, wird unwahrscheinlicher', 'Au-delà de 1 : ce qui est déjà là devient moins probable', 'Más de 1: lo ya dicho es menos probable', 'Acima de 1: o já dito fica menos provável', 'Oltre 1: il già detto è meno probabile', 'Больше 1: сказанное менее вероятно', '大于 1 时减少重复', '1 より大きいと繰り返しを抑える', '1보다 크면 반복을 줄임'],
  presence_penalty: ['Presence', 'Vorkommen', 'Présence', 'Presencia', 'Presença', 'Presenza', 'Присутствие', '存在惩罚', '出現', '존재'],
  presence_penalty_hint: ['Taken from what was said at all', 'Abzug für Gesagtes', 'Retiré à ce qui a été dit', 'Se resta a lo ya dicho', 'Subtraído do já dito', 'Sottratto a ciò che è stato detto', 'Вычитается из сказанного', '对已出现词元的扣分', '出現済みトークンへの減点', '등장한 토큰에 대한 감점'],
  frequency_penalty: ['Frequency', 'Häufigkeit', 'Fréquence', 'Frecuencia', 'Frequência', 'Frequenza', 'Частота', '频率惩罚', '頻度', '빈도'],
  frequency_penalty_hint: ['The same, for each time', 'Dasselbe, für jedes Mal', 'De même, à chaque fois', 'Lo mismo, por cada vez', 'O mesmo, por vez', 'Lo stesso, per ogni volta', 'То же, за каждый раз', '按出现次数扣分', '出現回数ごとの減点', '등장 횟수만큼 감점'],
  stopStrings: ['Stop strings', 'Stopptexte', 'Chaînes d’arrêt', 'Cadenas de parada', 'Textos de parada', 'Stringhe di stop', 'Стоп-строки', '停止字符串', '停止文字列', '중지 문자열'],
  stopHint: ['One a line', 'Einer je Zeile', 'Une par ligne', 'Una por línea', 'Um por linha', 'Una per riga', 'По одной в строке', '每行一个', '1 行に 1 つ', '한 줄에 하나'],
  effort: ['Thinking', 'Nachdenken', 'Réflexion', 'Razonamiento', 'Raciocínio', 'Ragionamento', 'Размышление', '思考', '思考', '생각'],
  effortDefault: ['as the model likes', 'wie das Modell mag', 'au choix du modèle', 'como quiera el modelo', 'como o modelo quiser', 'come vuole il modello', 'на усмотрение модели', '由模型决定', 'モデルに任せる', '모델에 맡김'],
  effort_none: ['none', 'keines', 'aucune', 'ninguno', 'nenhum', 'nessuno', 'нет', '关闭', 'なし', '없음'],
  effort_low: ['low', 'wenig', 'faible', 'bajo', 'baixo', 'basso', 'мало', '低', '低', '낮음'],
  effort_medium: ['medium', 'mittel', 'moyenne', 'medio', 'médio', 'medio', 'средне', '中', '中', '보통'],
  effort_high: ['high', 'viel', 'élevée', 'alto', 'alto', 'alto', 'много', '高', '高', '높음'],
  output: ['Output', 'Ausgabe', 'Sortie', 'Salida', 'Saída', 'Output', 'Вывод', '输出', '出力', '출력'],
  format: ['Form', 'Form', 'Forme', 'Formato', 'Formato', 'Formato', 'Форма', '格式', '形式', '형식'],
  formatText: ['Text', 'Text', 'Texte', 'Texto', 'Texto', 'Testo', 'Текст', '文本', 'テキスト', '텍스트'],
  formatJson: ['JSON', 'JSON', 'JSON', 'JSON', 'JSON', 'JSON', 'JSON', 'JSON', 'JSON', 'JSON'],
  formatSchema: ['JSON schema', 'JSON-Schema', 'Schéma JSON', 'Esquema JSON', 'Esquema JSON', 'Schema JSON', 'Схема JSON', 'JSON 模式', 'JSON スキーマ', 'JSON 스키마'],
  schema: ['JSON schema', 'JSON-Schema', 'Schéma JSON', 'Esquema JSON', 'Esquema JSON', 'Schema JSON', 'Схема JSON', 'JSON 模式', 'JSON スキーマ', 'JSON 스키마'],
  schemaMissing: ['A schema is missing', 'Es fehlt ein Schema', 'Il manque un schéma', 'Falta un esquema', 'Falta um esquema', 'Manca uno schema', 'Нет схемы', '缺少模式', 'スキーマがありません', '스키마가 없습니다'],
  objectExpected: ['A schema is a JSON object', 'Ein Schema ist ein JSON-Objekt', 'Un schéma est un objet JSON', 'Un esquema es un objeto JSON', 'Um esquema é um objeto JSON', 'Uno schema è un oggetto JSON', 'Схема — это объект JSON', '模式应为 JSON 对象', 'スキーマは JSON オブジェクトです', '스키마는 JSON 객체입니다'],
  tools: ['Tools', 'Werkzeuge', 'Outils', 'Herramientas', 'Ferramentas', 'Strumenti', 'Инструменты', '工具', 'ツール', '도구'],
  toolsLabel: ['Tools, as a JSON list', 'Werkzeuge, als JSON-Liste', 'Outils, en liste JSON', 'Herramientas, como lista JSON', 'Ferramentas, como lista JSON', 'Strumenti, come lista JSON', 'Инструменты, список JSON', '工具（JSON 列表）', 'ツール（JSON リスト）', '도구(JSON 목록)'],
  toolsExpected: ['A list of functions with names', 'Eine Liste von Funktionen mit Namen', 'Une liste de fonctions nommées', 'Una lista de funciones con nombre', 'Uma lista de funções com nome', 'Una lista di funzioni con nome', 'Список функций с именами', '应为带名称的函数列表', '名前付き関数のリスト', '이름이 있는 함수 목록'],
  valid: ['Valid', 'Gültig', 'Valide', 'Válido', 'Válido', 'Valido', 'Верно', '有效', '有効', '유효함'],
  example: ['Example', 'Beispiel', 'Exemple', 'Ejemplo', 'Exemplo', 'Esempio', 'Пример', '示例', '例', '예시'],
  tidy: ['Tidy', 'Ordnen', 'Mettre en forme', 'Ordenar', 'Organizar', 'Riordina', 'Выровнять', '整理', '整形', '정리'],
  clear: ['Clear', 'Leeren', 'Vider', 'Vaciar', 'Limpar', 'Svuota', 'Очистить', '清空', '消去', '지우기'],
  probabilitiesSetting: ['Ask for probabilities', 'Wahrscheinlichkeiten anfordern', 'Demander les probabilités', 'Pedir probabilidades', 'Pedir probabilidades', 'Chiedi le probabilità', 'Запрашивать вероятности', '请求概率', '確率を取得', '확률 요청'],
  thisPage: ['This page', 'Diese Seite', 'Cette page', 'Esta página', 'Esta página', 'Questa pagina', 'Эта страница', '此页面', 'このページ', '이 페이지'],
  theme: ['Theme', 'Farben', 'Thème', 'Tema', 'Tema', 'Tema', 'Тема', '主题', 'テーマ', '테마'],
  themeSystem: ['System', 'System', 'Système', 'Sistema', 'Sistema', 'Sistema', 'Системная', '跟随系统', 'システム', '시스템'],
  themeLight: ['Light', 'Hell', 'Clair', 'Claro', 'Claro', 'Chiaro', 'Светлая', '浅色', 'ライト', '밝게'],
  themeDark: ['Dark', 'Dunkel', 'Sombre', 'Oscuro', 'Escuro', 'Scuro', 'Тёмная', '深色', 'ダーク', '어둡게'],
  language: ['Language', 'Sprache', 'Langue', 'Idioma', 'Idioma', 'Lingua', 'Язык', '语言', '言語', '언어'],
  enterSends: ['Enter sends', 'Enter sendet', 'Entrée envoie', 'Enter envía', 'Enter envia', 'Invio spedisce', 'Enter отправляет', '回车发送', 'Enter で送信', 'Enter로 보내기'],
  apiKey: ['API key', 'API-Schlüssel', 'Clé d’API', 'Clave de API', 'Chave de API', 'Chiave API', 'Ключ API', 'API 密钥', 'API キー', 'API 키'],
  keyNone: ['none', 'keiner', 'aucune', 'ninguna', 'nenhuma', 'nessuna', 'нет', '无', 'なし', '없음'],
  keyAsked: ['This server asks for a key. It is kept until the tab is closed.', 'Dieser Server verlangt einen Schlüssel. Er wird behalten, bis der Tab geschlossen wird.', 'Ce serveur demande une clé. Elle est gardée jusqu’à la fermeture de l’onglet.', 'Este servidor pide una clave. Se guarda hasta cerrar la pestaña.', 'Este servidor pede uma chave. Ela é guardada até fechar a aba.', 'Questo server chiede una chiave. Resta fino alla chiusura della scheda.', 'Сервер требует ключ. Он хранится до закрытия вкладки.', '此服务器需要密钥。密钥保留到标签页关闭为止。', 'このサーバーにはキーが必要です。タブを閉じるまで保持されます。', '이 서버는 키가 필요합니다. 탭을 닫을 때까지 보관됩니다.'],
  keyWrong: ['The server does not know this key.', 'Der Server kennt diesen Schlüssel nicht.', 'Le serveur ne connaît pas cette clé.', 'El servidor no conoce esta clave.', 'O servidor não conhece esta chave.', 'Il server non conosce questa chiave.', 'Сервер не знает этого ключа.', '服务器不认识此密钥。', 'サーバーはこのキーを知りません。', '서버가 이 키를 알지 못합니다.'],
  keyNeeded: ['A key is needed: enter it in the settings.', 'Ein Schlüssel ist nötig: in den Einstellungen eingeben.', 'Une clé est nécessaire : saisissez-la dans les réglages.', 'Hace falta una clave: ponla en los ajustes.', 'É preciso uma chave: informe-a nas configurações.', 'Serve una chiave: inseriscila nelle impostazioni.', 'Нужен ключ: введите его в настройках.', '需要密钥：请在设置中输入。', 'キーが必要です。設定で入力してください。', '키가 필요합니다. 설정에서 입력하세요.'],
  rememberKey: ['Remember on this device', 'Auf diesem Gerät merken', 'Mémoriser sur cet appareil', 'Recordar en este dispositivo', 'Lembrar neste dispositivo', 'Ricorda su questo dispositivo', 'Запомнить на этом устройстве', '在此设备上记住', 'この端末に記憶', '이 기기에 기억'],
  // The list
  rename: ['Rename', 'Umbenennen', 'Renommer', 'Renombrar', 'Renomear', 'Rinomina', 'Переименовать', '重命名', '名前を変更', '이름 바꾸기'],
  export: ['Export', 'Exportieren', 'Exporter', 'Exportar', 'Exportar', 'Esporta', 'Экспорт', '导出', '書き出す', '내보내기'],
  exportAll: ['Export all', 'Alle exportieren', 'Tout exporter', 'Exportar todo', 'Exportar tudo', 'Esporta tutto', 'Экспорт всего', '全部导出', 'すべて書き出す', '모두 내보내기'],
  exported: ['Exported: {n}', 'Exportiert: {n}', 'Exportées : {n}', 'Exportadas: {n}', 'Exportadas: {n}', 'Esportate: {n}', 'Экспортировано: {n}', '已导出：{n}', '書き出しました：{n}', '내보냄: {n}'],
  import: ['Import', 'Importieren', 'Importer', 'Importar', 'Importar', 'Importa', 'Импорт', '导入', '読み込む', '가져오기'],
  imported: ['Imported: {n}', 'Importiert: {n}', 'Importées : {n}', 'Importadas: {n}', 'Importadas: {n}', 'Importate: {n}', 'Импортировано: {n}', '已导入：{n}', '読み込みました：{n}', '가져옴: {n}'],
  notImported: ['Nothing was imported: {why}', 'Nichts importiert: {why}', 'Rien n’a été importé : {why}', 'No se importó nada: {why}', 'Nada foi importado: {why}', 'Nulla è stato importato: {why}', 'Ничего не импортировано: {why}', '未导入：{why}', '読み込めませんでした：{why}', '가져오지 못함: {why}'],
  notSaved: ['This browser did not save the conversation: {why}', 'Der Browser hat das Gespräch nicht gespeichert: {why}', 'Le navigateur n’a pas enregistré la conversation : {why}', 'El navegador no guardó la conversación: {why}', 'O navegador não salvou a conversa: {why}', 'Il browser non ha salvato la conversazione: {why}', 'Браузер не сохранил беседу: {why}', '浏览器未保存对话：{why}', '会話を保存できませんでした：{why}', '대화를 저장하지 못함: {why}'],
  nothingFound: ['Nothing found', 'Nichts gefunden', 'Rien trouvé', 'Sin resultados', 'Nada encontrado', 'Nessun risultato', 'Ничего не найдено', '未找到', '見つかりません', '결과 없음'],
  noConversations: ['No conversations yet', 'Noch keine Gespräche', 'Pas encore de conversation', 'Aún no hay conversaciones', 'Ainda não há conversas', 'Ancora nessuna conversazione', 'Бесед пока нет', '暂无对话', '会話はまだありません', '아직 대화가 없습니다'],
  today: ['Today', 'Heute', 'Aujourd’hui', 'Hoy', 'Hoje', 'Oggi', 'Сегодня', '今天', '今日', '오늘'],
  yesterday: ['Yesterday', 'Gestern', 'Hier', 'Ayer', 'Ontem', 'Ieri', 'Вчера', '昨天', '昨日', '어제'],
  // The server
  loadingModel: ['The model is being loaded…', 'Das Modell wird geladen …', 'Le modèle se charge…', 'Se está cargando el modelo…', 'O modelo está sendo carregado…', 'Il modello si sta caricando…', 'Модель загружается…', '正在加载模型…', 'モデルを読み込んでいます…', '모델을 불러오는 중…'],
  noServer: ['The server does not answer: {why}', 'Der Server antwortet nicht: {why}', 'Le serveur ne répond pas : {why}', 'El servidor no responde: {why}', 'O servidor não responde: {why}', 'Il server non risponde: {why}', 'Сервер не отвечает: {why}', '服务器无响应：{why}', 'サーバーが応答しません：{why}', '서버가 응답하지 않음: {why}'],
  noMetrics: ['No figures: {why}', 'Keine Zahlen: {why}', 'Pas de chiffres : {why}', 'Sin cifras: {why}', 'Sem números: {why}', 'Nessun dato: {why}', 'Нет данных: {why}', '无数据：{why}', '数値がありません：{why}', '수치 없음: {why}'],
  running: ['Running', 'Laufend', 'En cours', 'En curso', 'Em execução', 'In corso', 'Выполняется', '运行中', '実行中', '실행 중'],
  waiting: ['Waiting', 'Wartend', 'En attente', 'En espera', 'Em espera', 'In attesa', 'Ожидает', '等待中', '待機中', '대기 중'],
  requests: ['Requests', 'Anfragen', 'Requêtes', 'Peticiones', 'Requisições', 'Richieste', 'Запросы', '请求', 'リクエスト', '요청'],
  kvUse: ['KV cache', 'KV-Cache', 'Cache KV', 'Caché KV', 'Cache KV', 'Cache KV', 'KV-кэш', 'KV 缓存', 'KV キャッシュ', 'KV 캐시'],
  prefixHits: ['Prefix hits', 'Präfixtreffer', 'Préfixes trouvés', 'Aciertos de prefijo', 'Acertos de prefixo', 'Prefissi trovati', 'Попадания префикса', '前缀命中', 'プレフィックス命中', '프리픽스 적중'],
  throughput: ['Tokens per second', 'Tokens je Sekunde', 'Tokens par seconde', 'Tokens por segundo', 'Tokens por segundo', 'Token al secondo', 'Токенов в секунду', '每秒词元', '毎秒トークン', '초당 토큰'],
  outputTokens: ['Output', 'Ausgabe', 'Sortie', 'Salida', 'Saída', 'Output', 'Вывод', '输出', '出力', '출력'],
  promptTokens: ['Prompt', 'Prompt', 'Invite', 'Prompt', 'Prompt', 'Prompt', 'Промпт', '提示', 'プロンプト', '프롬프트'],
  perSecond: ['tok/s', 'Tok/s', 'tok/s', 'tok/s', 'tok/s', 'tok/s', 'ток/с', '词元/秒', 'トークン/秒', '토큰/초'],
  stepTime: ['Engine thread, by phase of a step', 'Engine-Thread, nach Phase eines Schritts', 'Fil du moteur, par phase d’un pas', 'Hilo del motor, por fase de un paso', 'Thread do motor, por fase de um passo', 'Thread del motore, per fase di un passo', 'Поток движка по фазам шага', '引擎线程（按步骤阶段）', 'エンジンスレッド（ステップの段階別）', '엔진 스레드(단계별)'],
  stepTimeline: ['Steps', 'Schritte', 'Pas', 'Pasos', 'Passos', 'Passi', 'Шаги', '步骤', 'ステップ', '단계'],
  stepTold: ['Number, time, tokens / sequences', 'Nummer, Zeit, Tokens / Sequenzen', 'Numéro, durée, tokens / séquences', 'Número, tiempo, tokens / secuencias', 'Número, tempo, tokens / sequências', 'Numero, tempo, token / sequenze', 'Номер, время, токены / последовательности', '编号、时间、词元 / 序列', '番号、時間、トークン / シーケンス', '번호, 시간, 토큰 / 시퀀스'],
  log: ['Log', 'Protokoll', 'Journal', 'Registro', 'Registro', 'Registro', 'Журнал', '日志', 'ログ', '로그'],
  noLog: ['Nothing has been logged', 'Nichts protokolliert', 'Rien dans le journal', 'Nada registrado', 'Nada registrado', 'Nulla nel registro', 'Записей нет', '暂无日志', 'ログはありません', '기록 없음'],
  latency: ['Latency', 'Latenz', 'Latence', 'Latencia', 'Latência', 'Latenza', 'Задержка', '延迟', 'レイテンシー', '지연 시간'],
  lastMinute: ['last minute', 'letzte Minute', 'dernière minute', 'último minuto', 'último minuto', 'ultimo minuto', 'последняя минута', '最近一分钟', '直近 1 分', '최근 1분'],
  sinceStart: ['since the start', 'seit dem Start', 'depuis le démarrage', 'desde el inicio', 'desde o início', 'dall’avvio', 'с запуска', '自启动以来', '起動以降', '시작 이후'],
  ttft: ['TTFT', 'TTFT', 'TTFT', 'TTFT', 'TTFT', 'TTFT', 'TTFT', 'TTFT', 'TTFT', 'TTFT'],
  ttft_hint: ['Time to the first token', 'Zeit bis zum ersten Token', 'Temps jusqu’au premier token', 'Tiempo hasta el primer token', 'Tempo até o primeiro token', 'Tempo al primo token', 'Время до первого токена', '首词元时间', '最初のトークンまでの時間', '첫 토큰까지의 시간'],
  tpot: ['TPOT', 'TPOT', 'TPOT', 'TPOT', 'TPOT', 'TPOT', 'TPOT', 'TPOT', 'TPOT', 'TPOT'],
  tpot_hint: ['Time per output token', 'Zeit je Ausgabetoken', 'Temps par token de sortie', 'Tiempo por token de salida', 'Tempo por token de saída', 'Tempo per token di output', 'Время на токен вывода', '每个输出词元的时间', '出力トークンあたりの時間', '출력 토큰당 시간'],
  itl: ['ITL', 'ITL', 'ITL', 'ITL', 'ITL', 'ITL', 'ITL', 'ITL', 'ITL', 'ITL'],
  itl_hint: ['Between one token and the next', 'Zwischen zwei Tokens', 'Entre deux tokens', 'Entre dos tokens', 'Entre dois tokens', 'Tra due token', 'Между токенами', '相邻词元间隔', 'トークン間の時間', '토큰 사이 시간'],
  queueTime: ['Queue', 'Warteschlange', 'File d’attente', 'Cola', 'Fila', 'Coda', 'Очередь', '排队', '待ち行列', '대기열'],
  queueTime_hint: ['From arrival to the first step', 'Von der Ankunft bis zum ersten Schritt', 'De l’arrivée au premier pas', 'De la llegada al primer paso', 'Da chegada ao primeiro passo', 'Dall’arrivo al primo passo', 'От прихода до первого шага', '从到达到首个步骤', '到着から最初のステップまで', '도착부터 첫 단계까지'],
  e2e: ['Whole', 'Ganz', 'Total', 'Total', 'Total', 'Totale', 'Всего', '总计', '全体', '전체'],
  e2e_hint: ['From arrival to the last token', 'Von der Ankunft bis zum letzten Token', 'De l’arrivée au dernier token', 'De la llegada al último token', 'Da chegada ao último token', 'Dall’arrivo all’ultimo token', 'От прихода до последнего токена', '从到达到最后词元', '到着から最後のトークンまで', '도착부터 마지막 토큰까지'],
  underWay: ['Answers under way', 'Laufende Antworten', 'Réponses en cours', 'Respuestas en curso', 'Respostas em andamento', 'Risposte in corso', 'Текущие ответы', '进行中的回答', '進行中の回答', '진행 중인 답변'],
  nothingRuns: ['Nothing runs', 'Nichts läuft', 'Rien en cours', 'Nada en curso', 'Nada em execução', 'Nulla in corso', 'Ничего не выполняется', '无运行任务', '実行中のものはありません', '실행 중인 항목 없음'],
  notToldHere: ['This server does not tell', 'Dieser Server sagt es nicht', 'Ce serveur ne le dit pas', 'Este servidor no lo dice', 'Este servidor não informa', 'Questo server non lo dice', 'Сервер этого не сообщает', '此服务器未提供', 'このサーバーでは分かりません', '이 서버는 알려 주지 않음'],
  cached: ['Cached', 'Im Cache', 'En cache', 'En caché', 'Em cache', 'In cache', 'В кэше', '已缓存', 'キャッシュ済み', '캐시됨'],
  engine: ['Engine', 'Engine', 'Moteur', 'Motor', 'Motor', 'Motore', 'Движок', '引擎', 'エンジン', '엔진'],
  context: ['Context', 'Kontext', 'Contexte', 'Contexto', 'Contexto', 'Contesto', 'Контекст', '上下文', 'コンテキスト', '컨텍스트'],
  stepsPerSecond: ['Steps per second', 'Schritte je Sekunde', 'Pas par seconde', 'Pasos por segundo', 'Passos por segundo', 'Passi al secondo', 'Шагов в секунду', '每秒步数', '毎秒ステップ', '초당 단계'],
  tokensPerStep: ['Tokens per step, p50 / p99', 'Tokens je Schritt, p50 / p99', 'Tokens par pas, p50 / p99', 'Tokens por paso, p50 / p99', 'Tokens por passo, p50 / p99', 'Token per passo, p50 / p99', 'Токенов за шаг, p50 / p99', '每步词元 p50 / p99', 'ステップあたりトークン p50 / p99', '단계당 토큰 p50 / p99'],
  preemptions: ['Preemptions', 'Verdrängungen', 'Préemptions', 'Expulsiones', 'Preempções', 'Prelazioni', 'Вытеснения', '抢占', 'プリエンプション', '선점'],
  answers: ['Answers', 'Antworten', 'Réponses', 'Respuestas', 'Respostas', 'Risposte', 'Ответы', '回答', '回答', '답변'],
  tenants: ['API keys', 'API-Schlüssel', 'Clés d’API', 'Claves de API', 'Chaves de API', 'Chiavi API', 'Ключи API', 'API 密钥', 'API キー', 'API 키'],
  key: ['Key', 'Schlüssel', 'Clé', 'Clave', 'Chave', 'Chiave', 'Ключ', '密钥', 'キー', '키'],
  refusals: ['Over a limit', 'Über einem Limit', 'Au-delà d’une limite', 'Sobre un límite', 'Acima de um limite', 'Oltre un limite', 'Сверх лимита', '超限次数', '上限超過', '한도 초과'],
  pinnedTokens: ['Pinned tokens', 'Angeheftete Tokens', 'Tokens épinglés', 'Tokens fijados', 'Tokens fixados', 'Token fissati', 'Закреплённые токены', '固定词元', '固定トークン', '고정 토큰'],
  // The keyboard
  keySend: ['Send', 'Senden', 'Envoyer', 'Enviar', 'Enviar', 'Invia', 'Отправить', '发送', '送信', '보내기'],
  keyLine: ['New line', 'Neue Zeile', 'Nouvelle ligne', 'Nueva línea', 'Nova linha', 'Nuova riga', 'Новая строка', '换行', '改行', '줄바꿈'],
  keyStop: ['Stop the answer, or close', 'Antwort anhalten, oder schließen', 'Arrêter la réponse ou fermer', 'Detener la respuesta o cerrar', 'Parar a resposta ou fechar', 'Ferma la risposta o chiudi', 'Остановить ответ или закрыть', '停止回答或关闭', '回答を停止、または閉じる', '답변 중지 또는 닫기'],
  keyEdit: ['Edit the last message', 'Letzte Nachricht bearbeiten', 'Modifier le dernier message', 'Editar el último mensaje', 'Editar a última mensagem', 'Modifica l’ultimo messaggio', 'Изменить последнее сообщение', '编辑上一条消息', '最後のメッセージを編集', '마지막 메시지 편집'],
  keyWrite: ['Write', 'Schreiben', 'Écrire', 'Escribir', 'Escrever', 'Scrivi', 'Писать', '输入', '入力', '입력'],
  keySearch: ['Search conversations', 'Gespräche durchsuchen', 'Chercher dans les conversations', 'Buscar conversaciones', 'Pesquisar conversas', 'Cerca conversazioni', 'Поиск бесед', '搜索对话', '会話を検索', '대화 검색'],
  keyNew: ['New chat', 'Neues Gespräch', 'Nouvelle conversation', 'Nuevo chat', 'Nova conversa', 'Nuova chat', 'Новая беседа', '新对话', '新しい会話', '새 대화'],
  keySettings: ['Settings', 'Einstellungen', 'Réglages', 'Ajustes', 'Configurações', 'Impostazioni', 'Настройки', '设置', '設定', '설정'],
  keyHelp: ['These shortcuts', 'Diese Kürzel', 'Ces raccourcis', 'Estos atajos', 'Estes atalhos', 'Queste scorciatoie', 'Эти сочетания', '这些快捷键', 'このショートカット', '이 단축키'],
};
// clang-format on

export function t(key, values = {}) {
  const text = kWords[key]?.[kColumn] ?? kWords[key]?.[0] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ''));
}

const kFormats = new Map();

export function formatNumber(value, digits = 0) {
  if (!kFormats.has(digits))
    kFormats.set(
        digits, new Intl.NumberFormat(language, {minimumFractionDigits: digits, maximumFractionDigits: digits}));
  return kFormats.get(digits).format(value);
}

export function formatSeconds(seconds) {
  if (seconds === null) return '–';
  if (seconds < 0.9995) return `${formatNumber(seconds * 1000, seconds < 0.01 ? 1 : 0)} ms`;
  return `${formatNumber(seconds, seconds < 10 ? 2 : 1)} s`;
}

// Today, where `time` is none or yet to come.
export function dayName(time) {
  const day = (at) => new Date(at).setHours(0, 0, 0, 0);
  const ago = Math.round((day(Date.now()) - day(time)) / 86_400_000);
  if (!(ago > 0)) return t('today');
  if (ago === 1) return t('yesterday');
  return new Intl.DateTimeFormat(language, {year: 'numeric', month: 'long'}).format(time);
}
