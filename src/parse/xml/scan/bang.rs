//! Markup that begins with `<!` or `<?`: comments, CDATA, processing
//! instructions, document types. All may be longer than the window, so their end is
//! found where it comes; of comments and instructions it is looked for a while, since
//! it may have been forgotten.

use super::super::bounds::{
    CDATA, COMMENT, CdataEnd, INSTRUCTION, Known, MarkEnd, Marks, before_mistyped_end,
    ends_with_end_of,
};
use super::{Cx, Flow, IssueCode, Passing, Scan, TAIL, Visitor, Window, boundary, excerpt};

/// Looks for the end of a comment or an instruction. None begins before the offset
/// `none_before`: however many were never closed, no byte is searched for it twice.
fn mark_end(w: &Window<'_>, inner: usize, marks: &Marks, none_before: &mut u64) -> MarkEnd {
    let mut known = w.until(inner, *none_before);
    let end = MarkEnd::find(w.from(inner), marks, &mut known, w.last);
    *none_before = w.offset(inner).saturating_add(known as u64).max(*none_before);
    end
}

impl Scan {
    /// `<!` and `<?`.
    pub(super) fn bang<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
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
        let inner = start + "<!--".len();
        let mut end = mark_end(w, inner, &COMMENT, &mut self.no_comment_end);
        let rest = w.from(inner);
        // Where the root does not end either, the document was cut: what was taken out
        // of it on purpose stays so.
        let is_cut = || self.elements.root().is_some_and(|root| !ends_with_end_of(rest, root));
        if matches!(end, MarkEnd::Unended(_)) && is_cut() {
            end = MarkEnd::Forgotten(rest.len());
        }
        self.marked(w, start, inner, end, COMMENT.end, cx)
    }

    fn instruction(&mut self, w: &Window<'_>, start: usize, cx: &mut Cx<'_>) -> Flow {
        let here = w.from(start);
        let inner = start + "<?".len();
        let declaration = here.starts_with("<?xml ")
            || here.starts_with("<?xml\t")
            || here.starts_with("<?xml\n");
        if declaration {
            if w.offset(start) > 0 && !self.elements.seen_root() {
                cx.note(IssueCode::LeadingWhitespace, excerpt(w.rest));
            }
            // It ends at the first `>`, with or without its `?`.
            self.passing = Some(Passing::Until(">"));
            return Flow::At(inner);
        }
        let inside = w.from(inner);
        let mut end = None;
        if inside.starts_with("xml-stylesheet") && w.offset(inner) >= self.no_stylesheet_end {
            end = MarkEnd::of_stylesheet(inside, w.last);
            if end.is_none() {
                self.no_stylesheet_end = w.offset(inner + MarkEnd::near(inside).len());
            }
        }
        let end =
            end.unwrap_or_else(|| mark_end(w, inner, &INSTRUCTION, &mut self.no_instruction_end));
        self.marked(w, start, inner, end, INSTRUCTION.end, cx)
    }

    /// Goes behind a comment or an instruction, or on inside it.
    fn marked(
        &mut self,
        w: &Window<'_>,
        start: usize,
        inner: usize,
        end: MarkEnd,
        mark: &'static str,
        cx: &mut Cx<'_>,
    ) -> Flow {
        match end {
            MarkEnd::Proper(end) => Flow::At(inner + end),
            MarkEnd::Forgotten(end) | MarkEnd::Unended(end) => {
                cx.note(IssueCode::ParsingError, excerpt(w.from(start)));
                // Tags that went with it may have been an entry.
                let gone = w.from(inner).as_bytes().get(..end).unwrap_or_default();
                self.lost |= gone.windows(2).any(|at| at[0] == b'<' && at[1].is_ascii_alphabetic());
                Flow::At(inner + end)
            }
            MarkEnd::Unsure => Flow::Need(start),
            MarkEnd::Beyond => {
                self.passing = Some(Passing::Until(mark));
                Flow::At(inner)
            }
        }
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
        let here = w.offset(at);
        let entry = self.entry_in_cdata.and_then(|entry| entry.checked_sub(here));
        let mut known = Known {
            to: w.until(at, self.no_cdata_end),
            entry: entry.and_then(|entry| usize::try_from(entry).ok()),
        };
        let end = CdataEnd::find(inside, self.elements.top(), &mut known, w.last);
        self.no_cdata_end = self.no_cdata_end.max(here.saturating_add(known.to as u64));
        self.entry_in_cdata = known.entry.map(|entry| here + entry as u64).or(self.entry_in_cdata);
        match end {
            CdataEnd::Proper(end) => {
                self.passing = None;
                self.elements.text(inside.get(..end).unwrap_or_default(), visitor, cx);
                Flow::At(at + end + "]]>".len())
            }
            CdataEnd::Forgotten(end) => {
                self.passing = None;
                cx.note(IssueCode::ParsingError, excerpt(inside));
                let text = before_mistyped_end(inside.get(..end).unwrap_or_default());
                self.elements.text(text, visitor, cx);
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
