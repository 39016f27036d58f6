//! JSON to Lua values.

use std::ffi::c_int;

use super::{DEPTH_MAX, Settings};
use crate::context::Context;
use crate::lua::{Raise, Stack};
use crate::number::parse_prefix;

pub(super) fn decode(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    if stack.top() != 1 {
        return Err(stack.bad_argument(1, "expected 1 argument"));
    }
    let text = stack.pin(1)?;
    if matches!(text, [0, _, ..] | [_, 0, ..]) {
        return Err(stack.fail("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut parser = Parser { text, at: 0, depth: 0, settings: context.json.get(), context };
    let token = parser.token()?;
    parser.value(stack, token)?;
    let end = parser.token()?;
    match end.kind {
        TokenKind::End => Ok(1),
        _ => Err(parser.unexpected(stack, "the end", end)),
    }
}

struct Token {
    kind: TokenKind,
    at: usize,
}

enum TokenKind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl TokenKind {
    /// What messages call it.
    fn name(&self) -> &'static str {
        match self {
            TokenKind::ObjectBegin => "T_OBJ_BEGIN",
            TokenKind::ObjectEnd => "T_OBJ_END",
            TokenKind::ArrayBegin => "T_ARR_BEGIN",
            TokenKind::ArrayEnd => "T_ARR_END",
            TokenKind::String(_) => "T_STRING",
            TokenKind::Number(_) => "T_NUMBER",
            TokenKind::Boolean(_) => "T_BOOLEAN",
            TokenKind::Null => "T_NULL",
            TokenKind::Colon => "T_COLON",
            TokenKind::Comma => "T_COMMA",
            TokenKind::End => "T_END",
            TokenKind::Error(text) => text,
        }
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: i32,
    settings: Settings,
    context: &'a Context,
}

impl Parser<'_> {
    /// Pushes the value that starts with `token`.
    fn value(&mut self, stack: &mut Stack<'_>, token: Token) -> Result<(), Raise> {
        match token.kind {
            TokenKind::String(bytes) => stack.push_bytes(&bytes),
            TokenKind::Number(number) => {
                stack.push_number(number);
                Ok(())
            }
            TokenKind::Boolean(value) => {
                stack.push_boolean(value);
                Ok(())
            }
            TokenKind::Null => {
                stack.push_null();
                Ok(())
            }
            TokenKind::ObjectBegin => self.object(stack),
            TokenKind::ArrayBegin => self.array(stack),
            _ => Err(self.unexpected(stack, "value", token)),
        }
    }

    fn object(&mut self, stack: &mut Stack<'_>) -> Result<(), Raise> {
        self.descend(stack)?;
        stack.push_table(0, 0)?;
        let table = stack.top();
        let mut token = self.token()?;
        if matches!(token.kind, TokenKind::ObjectEnd) {
            self.depth -= 1;
            return Ok(());
        }
        loop {
            let TokenKind::String(key) = &token.kind else {
                return Err(self.unexpected(stack, "object key string", token));
            };
            stack.push_bytes(key)?;
            token = self.token()?;
            if !matches!(token.kind, TokenKind::Colon) {
                return Err(self.unexpected(stack, "colon", token));
            }
            token = self.token()?;
            self.value(stack, token)?;
            stack.set_entry(table)?;
            token = self.token()?;
            match token.kind {
                TokenKind::ObjectEnd => break,
                TokenKind::Comma => token = self.token()?,
                _ => return Err(self.unexpected(stack, "comma or object end", token)),
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self, stack: &mut Stack<'_>) -> Result<(), Raise> {
        self.descend(stack)?;
        stack.push_table(0, 0)?;
        let table = stack.top();
        let mut token = self.token()?;
        if matches!(token.kind, TokenKind::ArrayEnd) {
            self.depth -= 1;
            return Ok(());
        }
        for position in 1..=c_int::MAX {
            self.value(stack, token)?;
            stack.set_item(table, position)?;
            token = self.token()?;
            match token.kind {
                TokenKind::ArrayEnd => break,
                TokenKind::Comma => token = self.token()?,
                _ => return Err(self.unexpected(stack, "comma or array end", token)),
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn descend(&mut self, stack: &mut Stack<'_>) -> Result<(), Raise> {
        self.depth += 1;
        if self.depth <= self.settings.decode_depth_max
            && self.depth <= DEPTH_MAX
            && stack.reserve(3).is_ok()
        {
            return Ok(());
        }
        let text = format!(
            "Found too many nested data structures ({}) at character {}",
            self.depth, self.at
        );
        Err(stack.fail(text))
    }

    fn unexpected(&self, stack: &mut Stack<'_>, expected: &str, found: Token) -> Raise {
        stack.fail(format!(
            "Expected {expected} but found {} at character {}",
            found.kind.name(),
            found.at + 1
        ))
    }

    fn byte(&self, ahead: usize) -> u8 {
        // A zero ends the text, as in C.
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Result<Token, Raise> {
        self.context.spend(8)?;
        while matches!(self.byte(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.context.spend(1)?;
            self.at += 1;
        }
        let at = self.at;
        let single = match self.byte(0) {
            b'{' => TokenKind::ObjectBegin,
            b'}' => TokenKind::ObjectEnd,
            b'[' => TokenKind::ArrayBegin,
            b']' => TokenKind::ArrayEnd,
            b':' => TokenKind::Colon,
            b',' => TokenKind::Comma,
            0 => return Ok(Token { kind: TokenKind::End, at }),
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => return Ok(self.number()),
            _ => return Ok(self.word()),
        };
        self.at += 1;
        Ok(Token { kind: single, at })
    }

    fn error(&self, text: &'static str) -> Token {
        Token { kind: TokenKind::Error(text), at: self.at }
    }

    fn word(&mut self) -> Token {
        let at = self.at;
        let rest = &self.text[self.at..];
        let words = [
            (&b"true"[..], TokenKind::Boolean(true)),
            (b"false", TokenKind::Boolean(false)),
            (b"null", TokenKind::Null),
        ];
        for (word, kind) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return Token { kind, at };
            }
        }
        if self.settings.decode_invalid && self.is_invalid_number() {
            return self.number();
        }
        self.error("invalid token")
    }

    fn number(&mut self) -> Token {
        let at = self.at;
        if !self.settings.decode_invalid && self.is_invalid_number() {
            return self.error("invalid number");
        }
        match parse_prefix(&self.text[self.at..]) {
            Some((number, length)) => {
                self.at += length;
                Token { kind: TokenKind::Number(number), at }
            }
            None => self.error("invalid number"),
        }
    }

    /// Whether this is a number for C and not for JSON: hexadecimal, infinite, or none at all.
    fn is_invalid_number(&self) -> bool {
        if self.byte(0) == b'+' {
            return true;
        }
        let sign = usize::from(self.byte(0) == b'-');
        match self.byte(sign) {
            b'0' => matches!(self.byte(sign + 1), b'x' | b'X' | b'0'..=b'9'),
            byte if byte <= b'9' => false,
            _ => {
                let word = [self.byte(sign), self.byte(sign + 1), self.byte(sign + 2)];
                word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
            }
        }
    }

    fn string(&mut self) -> Result<Token, Raise> {
        let at = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            self.context.spend(1)?;
            match self.byte(0) {
                b'"' => break,
                0 => return Ok(self.error("unexpected end of string")),
                b'\\' => match self.escape(&mut bytes) {
                    Ok(length) => self.at += length,
                    Err(text) => return Ok(self.error(text)),
                },
                byte => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Ok(Token { kind: TokenKind::String(bytes), at })
    }

    /// Appends what the escape here stands for, and answers its length.
    fn escape(&self, bytes: &mut Vec<u8>) -> Result<usize, &'static str> {
        let plain = match self.byte(1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode(bytes).ok_or("invalid unicode escape code"),
            _ => return Err("invalid escape code"),
        };
        bytes.push(plain);
        Ok(2)
    }

    fn unicode(&self, bytes: &mut Vec<u8>) -> Option<usize> {
        let first = self.hexadecimal(2)?;
        let (code, length) = match first {
            0xD800..=0xDBFF => {
                if self.byte(6) != b'\\' || self.byte(7) != b'u' {
                    return None;
                }
                let second = self.hexadecimal(8)?;
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return None;
                }
                (0x10000 + ((first & 0x3FF) << 10 | (second & 0x3FF)), 12)
            }
            _ => (first, 6),
        };
        // The low half of a pair alone is no character.
        let character = char::from_u32(code)?;
        bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Some(length)
    }

    fn hexadecimal(&self, ahead: usize) -> Option<u32> {
        (0..4).try_fold(0, |code, place| {
            Some(code * 16 + char::from(self.byte(ahead + place)).to_digit(16)?)
        })
    }
}
