//! Writes well-formed XML, each time in another of the spellings it may have.
//!
//! Text as references, as CDATA sections or as both; comments, processing
//! instructions and blanks wherever they say nothing; either quote. What is
//! written is decided by the caller, how by the dice.

use std::fmt::Write as _;

use crate::support::laws::Dice;

/// A part of a document, to be written later.
pub(super) type Part<'a> = Box<dyn Fn(&mut Pen) + 'a>;

/// A document in the making.
pub(super) struct Pen {
    out: String,
    pub(super) dice: Dice,
    /// Blanks around text, where readers are to take them off.
    pub(super) padded: bool,
}

impl Pen {
    /// A document that begins as documents may.
    pub(super) fn new(seed: u64) -> Self {
        let mut pen =
            Self { out: String::new(), dice: Dice::of(&seed.to_le_bytes()), padded: false };
        let starts = [
            "",
            "\u{feff}",
            "<?xml version=\"1.0\"?>",
            "<?xml version='1.0' encoding='UTF-8'?>\n",
            "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?>\r\n<!-- a > b -->\n",
        ];
        pen.out.push_str(pen.dice.pick(&starts));
        pen
    }

    pub(super) fn finish(mut self) -> String {
        self.nothing();
        self.out
    }

    /// A start tag.
    pub(super) fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.nothing();
        self.start(name, attributes);
        let blank = self.blank();
        write!(self.out, "{blank}>").expect("a string");
    }

    /// An end tag.
    pub(super) fn close(&mut self, name: &str) {
        self.nothing();
        let blank = self.blank();
        write!(self.out, "</{name}{blank}>").expect("a string");
    }

    /// An element with text in it.
    pub(super) fn leaf(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        self.open(name, attributes);
        let around = if self.padded { self.blank() } else { "" };
        self.out.push_str(around);
        self.text(text);
        self.out.push_str(around);
        let blank = self.blank();
        write!(self.out, "</{name}{blank}>").expect("a string");
    }

    /// An element without anything in it.
    pub(super) fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.nothing();
        self.start(name, attributes);
        if self.dice.below(3) == 0 {
            write!(self.out, "></{name}>").expect("a string");
        } else {
            let blank = self.blank();
            write!(self.out, "{blank}/>").expect("a string");
        }
    }

    /// Parts whose order says nothing.
    pub(super) fn in_any_order(&mut self, mut parts: Vec<Part<'_>>) {
        self.dice.shuffle(&mut parts);
        for part in parts {
            part(self);
        }
    }

    /// What a reader passes over.
    pub(super) fn nothing(&mut self) {
        let pieces = ["", "", "\n  ", "\t", "<!-- <url> & -->", "<!---->", "<?pi <a> ?>", "\r\n"];
        self.out.push_str(self.dice.pick(&pieces));
    }

    fn blank(&mut self) -> &'static str {
        self.dice.pick(&["", "", "", " ", "\n", "\t "])
    }

    fn start(&mut self, name: &str, attributes: &[(&str, &str)]) {
        write!(self.out, "<{name}").expect("a string");
        for (attribute, value) in attributes {
            let value = value.replace('&', "&amp;").replace('<', "&lt;");
            let quoted = if self.dice.below(2) == 0 {
                format!("\"{}\"", value.replace('"', "&quot;"))
            } else {
                format!("'{}'", value.replace('\'', "&#39;"))
            };
            let gap = self.dice.pick(&[" ", "\n", "  "]);
            let equals = self.dice.pick(&["=", "=", " = "]);
            write!(self.out, "{gap}{attribute}{equals}{quoted}").expect("a string");
        }
    }

    fn text(&mut self, text: &str) {
        let chars: Vec<char> = text.chars().collect();
        let mut rest = chars.as_slice();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + self.dice.below(rest.len()));
            rest = after;
            let whole: String = piece.iter().collect();
            match self.dice.below(4) {
                0 if !whole.contains("]]") => {
                    write!(self.out, "<![CDATA[{whole}]]>").expect("a string");
                }
                way => piece.iter().for_each(|c| self.character(*c, way == 1)),
            }
        }
    }

    fn character(&mut self, c: char, always_as_reference: bool) {
        let code = u32::from(c);
        let written = match (c, self.dice.below(3)) {
            ('&', 0) => "&amp;".to_owned(),
            ('<', 0) => "&lt;".to_owned(),
            ('>', 0) => "&gt;".to_owned(),
            ('"', 0) => "&quot;".to_owned(),
            ('\'', 0) => "&apos;".to_owned(),
            ('&' | '<' | '>', 1) => format!("&#{code};"),
            ('&' | '<' | '>', _) => format!("&#x{code:X};"),
            (_, 1) if always_as_reference => format!("&#{code};"),
            (_, 2) if always_as_reference => format!("&#x{code:x};"),
            _ => c.to_string(),
        };
        self.out.push_str(&written);
    }
}
