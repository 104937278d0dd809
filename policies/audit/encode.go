package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/gate"
)

// How much is kept of a text, in bytes, and of a list, in entries. Of what is longer the digest of the whole is kept.
const (
	maxWord  = 256
	maxText  = 1 << 10
	maxValue = 64 << 10 // of arguments, and of what was withheld
	maxList  = 32
)

// MaxLine bounds a line, in bytes: what is longer is no record.
const MaxLine = 2 << 20

// Zero is what the first record of a chain has for the digest of the line before.
const Zero = "0000000000000000000000000000000000000000000000000000000000000000"

// Body encodes all of a record but its beginning (Line), without its end.
func (r *Record) Body(b []byte) []byte {
	e := encoder{b}
	e.word("writer", r.Writer)
	e.word("boot", r.Boot)
	e.word("kind", string(r.Kind))
	e.word("id", r.ID)
	e.word("client", r.Client)
	e.word("session", r.Session)
	e.word("server", r.Server)
	e.word("tool", r.Tool)
	e.word("method", r.Method)
	e.arguments("arguments", r.Arguments)
	e.label("before", r.Before)
	e.label("after", r.After)
	e.label("output", r.Output)
	facts, policy := r.Facts, r.Policy
	if d := r.Decision; d != nil { // what it was decided by is said once
		if facts == nil && d.Facts != (gate.Facts{}) {
			facts = &d.Facts
		}
		policy = cmp.Or(policy, d.Policy)
	}
	e.facts(facts)
	e.decision(r.Decision)
	e.findings(r.Findings)
	e.arguments("withheld", r.Withheld)
	e.word("approver", r.Approver)
	e.word("channel", r.Channel)
	e.word("to", r.To)
	e.word("pin", r.Pin)
	e.word("policy", policy)
	e.number("bytes", r.Bytes)
	e.number("latency", int64(r.Latency))
	e.word("outcome", r.Outcome)
	e.text("subject", r.Subject, maxText)
	e.text("old", r.Old, maxText)
	e.text("new", r.New, maxText)
	e.word("user", r.User)
	e.text("reason", r.Reason, maxText)
	e.number("left", r.Left)
	if f := r.Failure; f != nil {
		e.open("failure", '{')
		e.whole("class", string(f.Class), maxWord)
		e.number("retry_after", f.After)
		e.number("status", int64(f.Status))
		e.number("tries", int64(f.Tries))
		e.b = append(e.b, '}')
	}
	if r.Torn != nil {
		e.open("torn", '{')
		e.always("bytes", r.Torn.Bytes)
		e.whole("sha256", r.Torn.SHA256, maxWord)
		e.b = append(e.b, '}')
	}
	e.anchors(r.Anchors)
	return e.b
}

// Line puts the beginning before a body, and its end behind it: a whole line, without the line break.
func Line(b []byte, seq uint64, prev [32]byte, at time.Time, body []byte) []byte {
	b = append(b, beginSeq...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, beginPrev...)
	b = hex.AppendEncode(b, prev[:])
	b = append(b, beginTime...)
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	b = append(b, body...)
	return append(b, '}')
}

// The beginnings of every line.
const (
	beginSeq  = `{"seq":`
	beginPrev = `,"prev":"`
	beginTime = `","time":"`
)

type encoder struct{ b []byte }

func (e *encoder) key(name string) {
	if n := len(e.b); n == 0 || e.b[n-1] != '{' {
		e.b = append(e.b, ',')
	}
	e.b = append(e.b, '"')
	e.b = append(e.b, name...)
	e.b = append(e.b, '"', ':')
}

func (e *encoder) open(name string, bracket byte) {
	e.key(name)
	e.b = append(e.b, bracket)
}

func (e *encoder) word(name, s string) { e.text(name, s, maxWord) }

func (e *encoder) text(name, s string, most int) {
	if s != "" {
		e.whole(name, s, most)
	}
}

// whole writes a text also if it is empty.
func (e *encoder) whole(name, s string, most int) {
	e.key(name)
	e.b = appendText(e.b, s, most)
}

func (e *encoder) number(name string, n int64) {
	if n != 0 {
		e.always(name, n)
	}
}

func (e *encoder) always(name string, n int64) {
	e.key(name)
	e.b = strconv.AppendInt(e.b, n, 10)
}

func (e *encoder) truth(name string, v bool) {
	if v {
		e.key(name)
		e.b = append(e.b, "true"...)
	}
}

// list writes texts, of more than maxList the first and how many there are more, with a digest of these.
func (e *encoder) list(name string, list []string, most int) {
	e.open(name, '[')
	for i, s := range list {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		if i == maxList-1 && len(list) > maxList {
			e.b = appendText(e.b, more(list[i:], func(s string) string { return s }), most)
			break
		}
		e.b = appendText(e.b, s, most)
	}
	e.b = append(e.b, ']')
}

// more says of what there is no room for how much it is.
func more[T any](rest []T, text func(T) string) string {
	h := sha256.New()
	for _, v := range rest {
		s := text(v)
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return fmt.Sprintf("%d more, sha256 %x", len(rest), h.Sum(nil))
}

func (e *encoder) values(l gate.Label) {
	e.whole("confidentiality", l.Confidentiality.String(), maxWord)
	e.whole("integrity", l.Integrity.String(), maxWord)
}

func (e *encoder) label(name string, l *Label) {
	if l == nil {
		return
	}
	e.open(name, '{')
	e.values(l.Label)
	if len(l.Sources) > 0 {
		e.list("sources", l.Sources, maxWord)
	}
	e.b = append(e.b, '}')
}

func (e *encoder) arguments(name string, a *Arguments) {
	if a == nil {
		return
	}
	e.open(name, '{')
	e.always("bytes", int64(a.Bytes))
	e.whole("sha256", a.SHA256, maxWord)
	e.text("text", a.Text, maxValue)
	e.b = append(e.b, '}')
}

func (e *encoder) facts(f *gate.Facts) {
	if f == nil {
		return
	}
	e.open("facts", '{')
	e.open("output", '{')
	e.values(f.Output)
	e.b = append(e.b, '}')
	e.whole("audience", f.Audience.String(), maxWord)
	e.whole("effect", f.Effect.String(), maxWord)
	e.text("forbidden", f.Forbidden, maxText)
	e.text("tier", f.Tier, maxWord)
	e.truth("extract", f.Extract)
	e.truth("remembers", f.Remembers)
	e.open("from", '{')
	e.whole("confidentiality", f.From.Confidentiality, maxWord)
	e.whole("integrity", f.From.Integrity, maxWord)
	e.whole("audience", f.From.Audience, maxWord)
	e.whole("effect", f.From.Effect, maxWord)
	e.b = append(e.b, '}', '}')
}

// decision writes all of it but the facts and the policy, which stand beside it.
func (e *encoder) decision(d *gate.Decision) {
	if d == nil {
		return
	}
	e.open("decision", '{')
	e.whole("verdict", d.Verdict.String(), maxWord)
	e.whole("reason", d.Reason, maxText)
	e.whole("rule", d.Rule, maxText)
	e.list("fired", d.Fired, maxText)
	e.truth("once", d.Once)
	if len(d.Flows) > 0 {
		e.list("flows", d.Flows, maxText)
	}
	e.truth("inspect", d.Inspect)
	e.open("data", '{')
	e.values(d.Data)
	e.b = append(e.b, '}')
	e.whole("profile", d.Profile, maxWord)
	e.b = append(e.b, '}')
}

func (e *encoder) findings(list []Finding) {
	if len(list) == 0 {
		return
	}
	e.open("findings", '[')
	for i, f := range list {
		if i == maxList-1 && len(list) > maxList {
			f = Finding{Kind: "more", Detail: more(list[i:], func(f Finding) string { return f.Inspector + "\x00" + f.Kind + "\x00" + f.Detail })}
			list = list[:maxList]
		} else if i >= maxList {
			break
		}
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.b = append(e.b, '{')
		e.whole("inspector", f.Inspector, maxWord)
		e.whole("kind", f.Kind, maxWord)
		e.text("detail", f.Detail, maxText)
		e.text("digest", f.Digest, maxWord)
		e.b = append(e.b, '}')
	}
	e.b = append(e.b, ']')
}

func (e *encoder) anchors(list []Anchor) {
	if len(list) == 0 {
		return
	}
	e.open("anchors", '[')
	for i, a := range list[:min(len(list), maxList)] {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.b = append(e.b, '{')
		e.whole("chain", a.Chain, maxWord)
		e.key("seq")
		e.b = strconv.AppendUint(e.b, a.Seq, 10)
		e.whole("hash", a.Hash, maxWord)
		e.b = append(e.b, '}')
	}
	e.b = append(e.b, ']')
}

// cut is the beginning of a text that is longer than most bytes, with the length and the digest of the whole.
func cut(s string, most int) string {
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes, sha256 %x)", s[:end], len(s), sha256.Sum256([]byte(s)))
}

// Bounded is a text of arguments as a record keeps it: all of it or, of one that is longer, the beginning and what the
// whole was.
func Bounded(s string) string {
	const mark = 128 // bytes at most
	if len(s) <= maxValue {
		return s
	}
	return cut(s, maxValue-mark)
}

const hexDigits = "0123456789abcdef"

// appendText writes a JSON string: what is not UTF-8 as U+FFFD, and what does not print escaped, so that the file can
// be looked at by any means.
func appendText(b []byte, s string, most int) []byte {
	if len(s) > most {
		s = cut(s, most)
	}
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if c >= utf8.RuneSelf && unicode.IsPrint(r) && r != utf8.RuneError {
			i += n
			continue
		}
		b = append(b, s[from:i]...)
		b = appendEscaped(b, r)
		i += n
		from = i
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

func appendEscaped(b []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r == '\n':
		return append(b, '\\', 'n')
	case r >= 0x10000: // as UTF-16 has it (RFC 8259, section 7)
		r -= 0x10000
		b = appendUnit(b, 0xd800+r>>10)
		return appendUnit(b, 0xdc00+r&0x3ff)
	}
	return appendUnit(b, r)
}

func appendUnit(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
