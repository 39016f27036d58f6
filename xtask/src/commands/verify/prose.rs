//! What people read in a file, as words: documents, doc comments, texts in code, the page.
//!
//! In: a file. Out: its words in lower case, without punctuation, each with its line. A word that
//! is nothing but [`BREAK`] stands between things that do not belong to one sentence.

use super::rust::lines_outside_tests;
use super::tree::File;

/// Ends whatever was said before.
pub(super) const BREAK: &str = "";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The words of a file that has any for people; none of its code and none of its tests.
pub(super) fn words(file: &File) -> Vec<Word> {
    let extension = file.path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let mut prose = Prose::default();
    match extension {
        "rs" => Scanner::new(file).read(&mut prose),
        "md" => {
            let mut block = Block::default();
            file.lines().for_each(|(line, text)| block.add(line, text, &mut prose));
        }
        // Texts in it are not told from the code around them.
        _ => file.lines().for_each(|(line, text)| {
            prose.add(line, &text.replace(['"', '(', ')', '<', '>', '{', '}', '`'], " "));
        }),
    }
    prose.words
}

#[derive(Default)]
struct Prose {
    words: Vec<Word>,
}

impl Prose {
    fn add(&mut self, line: usize, text: &str) {
        for piece in text.split_whitespace() {
            let word = piece.trim_matches(|c: char| ".,:;()\"'!?*_[]|…`#".contains(c));
            self.words.push(Word { line, text: word.to_lowercase() });
            if piece.ends_with(['.', ':', ';', '!', '?', '|']) && !word.is_empty() {
                self.pause(line);
            }
        }
    }

    fn pause(&mut self, line: usize) {
        self.words.push(Word { line, text: BREAK.into() });
    }
}

/// Lines in the manner of Markdown, with code between backticks taken out.
#[derive(Default)]
struct Block {
    in_fence: bool,
    in_code: bool,
}

impl Block {
    fn add(&mut self, line: usize, text: &str, prose: &mut Prose) {
        if text.trim_start().starts_with("```") {
            (self.in_fence, self.in_code) = (!self.in_fence, false);
            return prose.pause(line);
        }
        if self.in_fence {
            return;
        }
        if text.trim().is_empty() {
            self.in_code = false;
            return prose.pause(line);
        }
        for (index, piece) in text.split('`').enumerate() {
            if index > 0 {
                self.in_code = !self.in_code;
                prose.pause(line);
            }
            if !self.in_code {
                prose.add(line, piece);
            }
        }
    }
}

/// Reads doc comments and texts with a space in them out of Rust code.
struct Scanner {
    characters: Vec<char>,
    at: usize,
    line: usize,
}

impl Scanner {
    fn new(file: &File) -> Self {
        let lines = lines_outside_tests(file).map(|line| line.text);
        let characters = lines.flat_map(|text| text.chars().chain(['\n'])).collect();
        Self { characters, at: 0, line: 1 }
    }

    fn read(mut self, prose: &mut Prose) {
        let (mut docs, mut docs_line) = (Block::default(), 0);
        while let Some(character) = self.peek(0) {
            match character {
                '/' if self.peek(1) == Some('/') => {
                    let comment = self.take_while(|c| c != '\n');
                    let Some(text) = doc_text(&comment) else { continue };
                    if docs_line + 1 != self.line {
                        docs = Block::default();
                        prose.pause(self.line);
                    }
                    docs.add(self.line, text, prose);
                    docs_line = self.line;
                }
                '"' => self.text(prose),
                'r' if self.begins_raw_text() => self.raw_text(prose),
                '\'' => self.quote(),
                _ => self.step(),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn step(&mut self) {
        self.line += usize::from(self.peek(0) == Some('\n'));
        self.at += 1;
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(character) = self.peek(0).filter(|c| belongs(*c)) {
            taken.push(character);
            self.step();
        }
        taken
    }

    /// A text with escapes. A backslash at the end of a line joins it to the next one.
    fn text(&mut self, prose: &mut Prose) {
        let (line, mut text) = (self.line, String::new());
        self.step();
        while let Some(character) = self.peek(0).filter(|c| *c != '"') {
            self.step();
            match (character, self.peek(0)) {
                ('\\', Some('\n')) => drop(self.take_while(char::is_whitespace)),
                ('\\', Some('n')) => {
                    text.push_str("\n\n");
                    self.step();
                }
                ('\\', Some(_)) => self.step(),
                _ => text.push(character),
            }
        }
        self.step();
        say(line, &text, prose);
    }

    fn begins_raw_text(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.characters.get(at));
        let mut ahead = 1;
        while self.peek(ahead) == Some('#') {
            ahead += 1;
        }
        self.peek(ahead) == Some('"') && !before.is_some_and(|c| c.is_alphanumeric() || *c == '_')
    }

    fn raw_text(&mut self, prose: &mut Prose) {
        self.step();
        let marks = self.take_while(|c| c == '#').len();
        self.step();
        let (line, mut text) = (self.line, String::new());
        while let Some(character) = self.peek(0) {
            if character == '"' && (1..=marks).all(|ahead| self.peek(ahead) == Some('#')) {
                break;
            }
            text.push(character);
            self.step();
        }
        (0..=marks).for_each(|_| self.step());
        say(line, &text, prose);
    }

    /// A character, or the mark of a lifetime.
    fn quote(&mut self) {
        let length = match (self.peek(1), self.peek(2)) {
            (Some('\\'), Some(_)) => 3,
            (Some(_), Some('\'')) => 2,
            _ => 1,
        };
        (0..length).for_each(|_| self.step());
        if length == 3 {
            self.take_while(|c| c != '\'' && c != '\n');
        }
        if length > 1 {
            self.step();
        }
    }
}

/// The text of a doc comment; `None` of another comment.
fn doc_text(comment: &str) -> Option<&str> {
    let text = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"))?;
    (!text.starts_with('/')).then_some(text)
}

/// Single words are names, not texts.
fn say(line: usize, text: &str, prose: &mut Prose) {
    if text.trim().contains(' ') {
        prose.pause(line);
        let mut block = Block::default();
        (line..).zip(text.lines()).for_each(|(line, text)| block.add(line, text, prose));
        prose.pause(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<(usize, String)> {
        let file = File { path: path.into(), text: text.into() };
        let words = words(&file).into_iter().filter(|word| word.text != BREAK);
        words.map(|word| (word.line, word.text)).collect()
    }

    fn joined(path: &str, text: &str) -> String {
        let words: Vec<String> = said(path, text).into_iter().map(|(_, word)| word).collect();
        words.join(" ")
    }

    #[test]
    fn documents_are_read_without_their_code() {
        let page =
            "# A *Head*\n\nIt is `code`, and\n`more\ncode` here.\n```sh\nnot this\n```\nEnd\n";
        assert_eq!(joined("a.md", page), "a head it is and here end");
        assert_eq!(said("a.md", "a\n\nb\n"), [(1, "a".into()), (3, "b".into())]);
    }

    #[test]
    fn code_is_read_for_what_it_says() {
        let code = "/// Says `it`.\n// Not this.\nfn f() {\n    say(\"two \\\n     words\", \"one\");\n}\n";
        assert_eq!(joined("src/a.rs", code), "says two words");
        let raw =
            "let a = r#\"some \"quoted\" words\"#; let b: &'static str = x('\"');\n/// End.\n";
        assert_eq!(joined("src/a.rs", raw), "some quoted words end");
        let quotes =
            "f('\\'', '\"', '\\u{1}'); g(\"a text\")\n#[cfg(test)]\nmod tests {\n\"no text\"\n";
        assert_eq!(joined("src/a.rs", quotes), "a text");
        assert_eq!(joined("tests/it/a.rs", code), "");
    }

    #[test]
    fn the_page_is_read_whole() {
        assert_eq!(joined("page/a.js", "say(`one ${two} three`);"), "say one $ two three");
    }
}
