//! Markup that begins with `<!` or `<?`: comments, CDATA, processing
//! instructions, document types. All may be longer than the window, so only
//! their start is looked for here and their end where it comes.

use super::super::bounds::CdataEnd;
use super::{Cx, Flow, IssueCode, Passing, Scan, TAIL, Visitor, Window, boundary, excerpt};

impl Scan {
    /// `<!` and `<?`.
    pub(super) fn bang<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        const CDATA: &str = "<![CDATA[";
        let here = w.from(start);
        if here.len() < CDATA.len() && !w.last {
            return Flow::Need(start);
        }
        if here.starts_with(CDATA) {
            self.passing = Some(Passing::Cdata);
            return Flow::At(start + CDATA.len());
        }
        if here.starts_with("<!--") {
            return self.comment(w, start, cx);
        }
        if here.starts_with("<?") {
            return self.instruction(w, start, cx);
        }
        if here.get(..9).is_some_and(|h| h.eq_ignore_ascii_case("<!doctype")) {
            return self.doctype(w, start, visitor, cx);
        }
        self.passing = Some(Passing::Until(">"));
        Flow::At(start)
    }

    fn comment(&mut self, w: &Window<'_>, start: usize, cx: &mut Cx<'_>) -> Flow {
        let inner = start + 4;
        let end = if self.no_comment_end { None } else { w.from(inner).find("-->") };
        if let Some(end) = end {
            return Flow::At(inner + end + 3);
        }
        if !w.last {
            self.passing = Some(Passing::Until("-->"));
            return Flow::At(inner);
        }
        // Never closed: take it for as little as may be.
        cx.note(IssueCode::ParsingError, excerpt(w.from(start)));
        self.no_comment_end = true;
        match w.from(inner).find('>') {
            Some(end) => Flow::At(inner + end + 1),
            None => Flow::At(w.rest.len()),
        }
    }

    fn instruction(&mut self, w: &Window<'_>, start: usize, cx: &mut Cx<'_>) -> Flow {
        let here = w.from(start);
        let declaration = here.starts_with("<?xml ")
            || here.starts_with("<?xml\t")
            || here.starts_with("<?xml\n");
        if declaration && w.offset(start) > 0 && !self.elements.seen_root() {
            cx.note(IssueCode::LeadingWhitespace, excerpt(w.rest));
        }
        // A declaration ends at the first `>`, with or without its `?`.
        self.passing = Some(Passing::Until(if declaration { ">" } else { "?>" }));
        Flow::At(start + 2)
    }

    fn doctype<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let inner = start + "<!doctype".len();
        let here = w.from(inner);
        let opens = here.find(['[', '>']);
        if opens.is_none() && !w.full(start) {
            return Flow::Need(start);
        }
        let root =
            here.trim_start().split(|c: char| c.is_whitespace() || matches!(c, '>' | '[')).next();
        visitor.doctype(root.unwrap_or_default());
        match opens {
            Some(i) if here.as_bytes().get(i) == Some(&b'[') => {
                cx.note(IssueCode::DoctypeIgnored, excerpt(w.from(start)));
                self.passing = Some(Passing::Subset);
                Flow::At(inner + i)
            }
            Some(i) => Flow::At(inner + i + 1),
            None => {
                self.passing = Some(Passing::Until(">"));
                Flow::At(inner)
            }
        }
    }

    /// The inside of a CDATA section, given on as it comes.
    pub(super) fn cdata<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        at: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        cx.place.at = w.origin.at + at;
        let inside = w.from(at);
        match CdataEnd::find(inside, self.elements.top(), w.last) {
            CdataEnd::Proper(end) => {
                self.passing = None;
                self.elements.text(inside.get(..end).unwrap_or_default(), visitor, cx);
                Flow::At(at + end + "]]>".len())
            }
            CdataEnd::Forgotten(end) => {
                self.passing = None;
                cx.note(IssueCode::ParsingError, excerpt(inside));
                self.elements.text(inside.get(..end).unwrap_or_default(), visitor, cx);
                Flow::At(at + end)
            }
            CdataEnd::Unsure => Flow::Need(at),
            CdataEnd::Beyond if w.last => {
                self.elements.text(inside, visitor, cx);
                Flow::At(w.rest.len())
            }
            CdataEnd::Beyond => {
                let safe = boundary(w.rest, w.rest.len().saturating_sub(TAIL)).max(at);
                self.elements.text(w.rest.get(at..safe).unwrap_or_default(), visitor, cx);
                Flow::Need(safe)
            }
        }
    }
}
