//! As much of Rust's grammar as the checks need, on source that rustfmt has laid out.
//!
//! It looks at lines, not at tokens: text in a string of several lines counts as code. That is
//! enough to keep honest people honest, and it needs no parser.

use super::tree::File;

/// A line of a Rust file.
pub(super) struct Line<'a> {
    pub(super) number: usize,
    pub(super) text: &'a str,
    /// The text before a comment.
    pub(super) code: &'a str,
}

impl Line<'_> {
    /// Whether it holds nothing but a comment.
    pub(super) fn is_comment(&self) -> bool {
        self.code.trim().is_empty() && !self.text.trim().is_empty()
    }
}

pub(super) fn lines(file: &File) -> impl Iterator<Item = Line<'_>> {
    file.lines().map(|(number, text)| Line { number, text, code: code_of(text) })
}

/// The lines outside of tests: none of a test file, and those above the unit tests, which stand at
/// a file's end.
pub(super) fn lines_outside_tests(file: &File) -> impl Iterator<Item = Line<'_>> {
    let tests_begin_at = if file.is_test() { 0 } else { unit_tests_begin_at(file) };
    lines(file).take_while(move |line| line.number < tests_begin_at)
}

fn unit_tests_begin_at(file: &File) -> usize {
    let mut lines = file.lines().peekable();
    while let Some((number, text)) = lines.next() {
        let next = lines.peek().map_or("", |&(_, text)| text);
        if text == "#[cfg(test)]" && next.starts_with("mod ") && next.ends_with('{') {
            return number;
        }
    }
    usize::MAX
}

/// The part before `//`, unless that stands in a string.
fn code_of(text: &str) -> &str {
    let mut in_string = false;
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((index, byte)) = bytes.next() {
        match byte {
            b'\\' if in_string => {
                bytes.next();
            }
            // A quote as a character opens no string.
            b'"' if !text[..index].ends_with('\'') => in_string = !in_string,
            b'/' if !in_string && bytes.peek().is_some_and(|&(_, next)| next == b'/') => {
                return &text[..index];
            }
            _ => {}
        }
    }
    text
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) line: usize,
    /// From the line with `fn` to the one with the closing brace.
    pub(super) length: usize,
}

/// The functions of a file. rustfmt puts a function's closing brace below the start of its first
/// line, and nothing else of the function there except the end of a long signature.
pub(super) fn functions(file: &File) -> Vec<Function<'_>> {
    let all: Vec<Line<'_>> = lines(file).collect();
    let mut functions = Vec::new();
    for (index, line) in all.iter().enumerate() {
        let Some(name) = function_name(line.code) else { continue };
        let indent = line.code.len() - line.code.trim_start().len();
        let length = (1..).zip(&all[index..]).find_map(|(length, line)| {
            let code = line.code.trim_end();
            let is_back = code.len() > indent && code.len() - code.trim_start().len() == indent;
            let has_ended = is_back && (code.ends_with('}') || code.ends_with(';'));
            has_ended.then_some(length)
        });
        functions.push(Function { name, line: line.number, length: length.unwrap_or(1) });
    }
    functions
}

/// The name when a function begins on this line.
fn function_name(code: &str) -> Option<&str> {
    let mut rest = code.trim_start();
    if let Some(after) = rest.strip_prefix("pub(") {
        rest = after.split_once(')')?.1.trim_start();
    }
    loop {
        let (word, after) = rest.split_once(' ')?;
        rest = after;
        match word {
            "fn" => break,
            "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"" => {}
            _ => return None,
        }
    }
    let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(&rest[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File { path: "src/lib.rs".into(), text: text.into() }
    }

    #[test]
    fn code_ends_where_a_comment_begins() {
        let cases = [
            ("let a = 1; // one", "let a = 1; "),
            ("/// docs", ""),
            (r#"let url = "http://host"; // there"#, r#"let url = "http://host"; "#),
            (r#"let quote = "\"//"; // end"#, r#"let quote = "\"//"; "#),
            (r#"if c == '"' {} // quote"#, r#"if c == '"' {} "#),
            ("let half = a / b;", "let half = a / b;"),
        ];
        for (text, code) in cases {
            assert_eq!(code_of(text), code);
        }
    }

    #[test]
    fn functions_are_measured_from_their_name_to_their_brace() {
        let source = "\
pub(crate) async fn short(
    name: &str,
) -> usize {
    if name.is_empty() {
        return 0;
    }
    1
}
trait Ship {
    fn sail(&self);
    const fn sink() {}
}
static NO_FUNCTION: fn(usize) = take;
";
        let source = file(source);
        let found: Vec<_> = functions(&source).iter().map(|f| (f.name, f.line, f.length)).collect();
        assert_eq!(found, [("short", 1, 8), ("sail", 10, 1), ("sink", 11, 1)]);
    }

    #[test]
    fn unit_tests_are_left_out_but_a_test_only_item_is_not() {
        let source =
            file("#[cfg(test)]\nfn helper() {}\nfn a() {}\n#[cfg(test)]\nmod tests {\n}\n");
        let last = lines_outside_tests(&source).last().unwrap();
        assert_eq!((last.number, last.code), (3, "fn a() {}"));
        let other = File { path: "tests/it/main.rs".into(), text: "fn a() {}\n".into() };
        assert_eq!(lines_outside_tests(&other).count(), 0);
    }

    #[test]
    fn a_comment_line_holds_nothing_else() {
        let source = file("// all\nlet a = 1; // part\n\n");
        let kinds: Vec<_> = lines(&source).map(|line| line.is_comment()).collect();
        assert_eq!(kinds, [true, false, false]);
    }
}
