// Package inspect looks for what is suspicious in a call's arguments or a result: secrets on their way out,
// instructions on their way in, however they are encoded.
package inspect

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/pfar/pfar/policies/inspector"
)

// Outcome is what an inspector says. The zero value is that it has said nothing, which is never taken for Clean.
type Outcome uint8

const (
	Missing Outcome = iota
	Flagged
	Clean
)

var outcomes = [...]string{"missing", "flagged", "clean"}

func (o Outcome) String() string {
	if int(o) >= len(outcomes) {
		return outcomes[Missing]
	}
	return outcomes[o]
}

// MarshalText writes the word; a value that is none is missing.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Severity is how much a finding weighs. The zero value is the heaviest.
type Severity uint8

const (
	Severe     Severity = iota // a secret, an attack
	Suspicious                 // it flags, too
	Note                       // it is only shown
)

var severities = [...]string{"severe", "suspicious", "note"}

func (s Severity) String() string {
	if int(s) >= len(severities) {
		return severities[Severe]
	}
	return severities[s]
}

// MarshalText writes the word; a value that is none is severe.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one thing that an inspector has found. All in it is fit to be shown and kept.
type Finding struct {
	Inspector string   `json:"inspector"`
	Kind      string   `json:"kind"` // "secret: GitHub", "vault: notion_token", "instruction"
	Severity  Severity `json:"severity"`
	Place     string   `json:"place"`             // JSON pointer (RFC 6901)
	Within    string   `json:"within,omitempty"`  // the encodings that were undone: "base64, gzip"
	Excerpt   string   `json:"excerpt,omitempty"` // escaped ASCII; of a secret only its beginning
	Digest    string   `json:"digest,omitempty"`  // SHA-256 of what was found, but for secrets of the vault and what can be guessed
}

// Secret reports whether it is about a secret, so that nobody else is to see the text.
func (f Finding) Secret() bool { return isSecret(f.Kind) }

func isSecret(kind string) bool {
	return strings.HasPrefix(kind, "vault: ") || strings.HasPrefix(kind, "secret: ")
}

// Report is what has come of an inspection. The zero value says that there was none.
type Report struct {
	Outcome  Outcome   `json:"outcome"`
	Findings []Finding `json:"findings,omitempty"`
	Reason   string    `json:"reason,omitempty"` // why it is missing
}

// Join is what both reports say together: the stricter outcome, and all findings.
func (r Report) Join(other Report) Report {
	joined := Report{Findings: append(r.Findings[:len(r.Findings):len(r.Findings)], other.Findings...)}
	joined.Reason = strings.Trim(r.Reason+"; "+other.Reason, "; ")
	switch {
	case r.Outcome == Flagged || other.Outcome == Flagged:
		joined.Outcome = Flagged
	case r.Outcome == Clean && other.Outcome == Clean:
		joined.Outcome = Clean
	}
	return joined
}

// Vault is the name of a secret of the vault that was found, "" if none was (gate.Arguments).
func (r Report) Vault() string { return r.named("vault: ") }

// Pattern is the kind of a secret that something looked like, "" if nothing did (gate.Arguments). What was not looked
// through whole may look like any.
func (r Report) Pattern() string {
	if name := r.named("secret: "); name != "" {
		return name
	}
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == tooMuchWork }) {
		return "any, as not all could be looked through"
	}
	return ""
}

func (r Report) named(prefix string) string {
	for _, f := range r.Findings {
		if name, ok := strings.CutPrefix(f.Kind, prefix); ok {
			return name
		}
	}
	return ""
}

// Vault finds values of secrets in a text, in any of their usual forms (policies/redact).
type Vault interface {
	Names(text []byte) []string
}

// Limits bound what a value may be, and what looking at it may cost. What is beyond them is found suspicious, never
// passed over.
type Limits struct {
	Size  int // bytes of JSON
	Depth int // nesting
	Line  int // bytes of a line of a text
	Work  int // bytes that are looked at, those that were decoded with them
}

// DefaultLimits are those of a Builtin that has none.
var DefaultLimits = Limits{Size: 8 << 20, Depth: 64, Line: 1 << 20, Work: 16 << 20}

// Name is what the findings of a Builtin go by.
const Name = "built-in"

// Builtin is the inspector that is always there. The zero value knows no vault, and takes the default limits.
type Builtin struct {
	Limits Limits
	Vault  Vault    // nil: none is known
	Others []string // what tools of other servers are called: "mail.send", "mail__send"
	Parsed bool     // all that it is given is known to be JSON
	Fenced bool     // another looks for forged marks in the strings as they stand, as it fences them (Forged)

	read func(text string) // gets all that can be read, and nothing is looked for in it (Readings); nil: nobody does
}

const (
	maxFindings = 64  // and further secrets
	maxAdded    = 256 // findings, those with them that had been made before
)

// Inspect looks at a value of JSON, the whole of it. One that is not JSON is looked at as text. Its outcome is Clean or
// Flagged.
func (b *Builtin) Inspect(d inspector.Direction, value []byte) Report {
	in := b.Begin(d, value)
	return in.End(in.strings())
}

// Begin begins to look at a value of JSON for somebody who reads it, and has each of its strings looked at.
func (b *Builtin) Begin(d inspector.Direction, value []byte) *Inspection {
	in := new(Inspection)
	begin(in, b, d, value)
	return in
}

func begin(in *Inspection, b *Builtin, d inspector.Direction, value []byte) {
	in.Builtin, in.direction, in.value, in.limits = b, d, value, b.Limits
	if in.limits == (Limits{}) {
		in.limits = DefaultLimits
	}
	if len(value) > in.limits.Size {
		in.add("size", Suspicious, nil, fmt.Sprintf("%d bytes, more than %d", len(value), in.limits.Size), "")
	}
}

// Suspicion returns what a text of JSON that comes in is suspicious for, in words; "" if it is not. Others are the
// tools of other servers, as in Builtin.
func Suspicion(value []byte, others []string) string {
	builtin := Builtin{Others: others}
	for _, f := range builtin.Inspect(inspector.Inbound, value).Findings {
		if f.Severity < Note {
			return f.Kind
		}
	}
	return ""
}

// Inspection is one value that is being looked at.
type Inspection struct {
	*Builtin
	direction inspector.Direction
	value     []byte
	limits    Limits
	work      int
	at        int   // where the string begins that is looked at
	name      bool  // it is the name of a member
	named     bool  // a name looks like a secret
	place     place // of that string, once there is something to say of it
	findings  []Finding
	added     int
	seen      map[string]bool
	begins    *beginnings         // of words that are looked for
	others    map[string][]string // Others, by their first word
	met       byte                // what words of the text are that was read last
	all       joined              // its strings on their way out
}

// String looks at a string of the value, or the name of a member, that begins at some byte of it, and keeps no part of
// it. They are to come in order.
func (in *Inspection) String(at int, text string, name bool) {
	in.at, in.name = at, name
	in.text(text, nil)
	if in.direction != inspector.Inbound && !name {
		in.all.add(text, len(in.value))
	}
}

// End returns what has come of it, all strings having been looked at of a value that nests so deep; -1 stands for what
// is no JSON. Its outcome is Clean or Flagged.
func (in *Inspection) End(depth int) Report {
	in.at, in.name = 0, false
	if depth < 0 && len(in.value) > 0 && (in.value[0] == '{' || in.value[0] == '[') {
		in.add("not JSON", Suspicious, nil, "it begins like JSON, but is not JSON", "")
	}
	if depth > in.limits.Depth {
		in.add("depth", Suspicious, nil, fmt.Sprintf("%d levels, more than %d", depth, in.limits.Depth), "")
	}
	if in.direction != inspector.Inbound { // a secret in several pieces
		all := shared(in.all.text) // nothing is added to it any more
		if in.read != nil {
			in.name, in.all.read = true, true
			in.text(all, nil)
		} else if in.all.pieces > 1 {
			in.leaks(all, []string{"joined strings"})
		}
		for _, text := range codes(shared(in.value)) {
			in.text(text, []string{"character codes"})
		}
	}
	in.conceal()
	r := Report{Outcome: Clean, Findings: in.findings}
	for _, f := range r.Findings {
		if f.Severity < Note {
			r.Outcome = Flagged
		}
	}
	return r
}

// shared is a text in the same memory, which must not change as long as it is read.
func shared(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }

// tooMuchWork is what is found where looking at all would take too long.
const tooMuchWork = "work"

// joined is what the strings of a value are side by side. Of a long one it has both ends, which a secret in several
// pieces has parts in; one that is in it as a whole is found in it.
type joined struct {
	text   []byte
	pieces int
	whole  bool // no text is shortened

	read   bool  // Readings reads it as one text
	looked []int // where each string begins and ends that Readings has read alone before
}

const maxEnd = 64 << 10 // bytes: no secret of the vault has more

// add adds a string of a value that has so many bytes.
func (j *joined) add(text string, size int) {
	if j.text == nil { // a usual value's strings all have room
		j.text = make([]byte, 0, min(size, maxEnd))
	}
	if len(text) > 2*maxEnd && !j.whole {
		j.text = append(append(j.text, text[:maxEnd]...), '\n')
		text = text[len(text)-maxEnd:]
	}
	j.text = append(j.text, text...)
	j.pieces++
}

// alone reports whether a run of the text lies in one string that Readings has read alone. It was a run of that string,
// too, so Readings has read what it stands for.
func (j *joined) alone(start, end int) bool {
	i, _ := slices.BinarySearch(j.looked, end) // the first place that is not before end
	return i%2 == 1 && j.looked[i-1] <= start
}

// text looks at one text that was reached by undoing some encodings.
func (in *Inspection) text(text string, within []string) {
	if text == "" {
		return
	}
	if !in.works(len(text), within) {
		return
	}
	if in.read != nil {
		reading(in, text, within)
		return
	}
	if in.direction != inspector.Inbound {
		in.leaks(text, within)
		in.blobs(text, within)
	}
	plain := ordinary(text)
	if in.direction != inspector.Outbound {
		in.instructions(text, plain, within)
		in.hidden(text, plain, within)
	}
	in.exfiltration(text, within)
	in.lines(text, within)
	if len(within) < maxLayers {
		in.decoded(text, plain, within)
	}
}

// works counts bytes that are looked at, and reports whether there may be so many. That there may not is a finding.
func (in *Inspection) works(bytes int, within []string) bool {
	if in.work += bytes; in.work <= in.limits.Work {
		return true
	}
	in.add(tooMuchWork, Suspicious, within, fmt.Sprintf("it takes looking at more than %d bytes", in.limits.Work), "")
	return false
}

func (in *Inspection) lines(text string, within []string) {
	if len(text) <= in.limits.Line {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		if len(line) > in.limits.Line {
			in.add("line", Suspicious, within, fmt.Sprintf("%d bytes without a line end, more than %d", len(line), in.limits.Line), "")
			return
		}
	}
}

// leaks looks for secrets in a text, and in what is read of it backwards or rotated, if it has anything as long as a
// token.
func (in *Inspection) leaks(text string, within []string) {
	in.vault(text, within)
	in.secrets(text, within)
	if f := isVisible.In(text); f.Run(0, minToken) < 0 {
		return
	}
	for _, turn := range turns {
		plain, layers := turn.undo(text), append(within[:len(within):len(within)], turn.name)
		in.vault(plain, layers)
		in.secrets(plain, layers)
	}
}

func (in *Inspection) vault(text string, within []string) {
	if in.Vault == nil || text == "" {
		return
	}
	for _, name := range in.Vault.Names([]byte(text)) {
		in.add("vault: "+name, Severe, within, "", "")
	}
}

// add notes a finding, each once in a place, and that there are more than it takes. found is what its digest is of, ""
// for none. The first of each that a call is denied or asked about for is never left out, however much else there is.
func (in *Inspection) add(kind string, severity Severity, within []string, excerpt, found string) {
	decides := in.decides(kind)
	in.named = in.named || in.name && isSecret(kind)
	if in.added >= maxAdded && !decides {
		return
	}
	if !decides {
		if in.added++; in.added == maxAdded || len(in.findings) >= maxFindings-1 {
			in.added = maxAdded
			in.findings = append(in.findings, Finding{Inspector: Name, Kind: "findings", Severity: Suspicious,
				Excerpt: "there are more than are shown"})
			return
		}
	}
	f := Finding{Inspector: Name, Kind: kind, Severity: severity, Within: strings.Join(within, ", "), Excerpt: Escape(excerpt)}
	if in.at > 0 {
		f.Place = in.place.pointer(in.value, in.at)
	}
	if found != "" {
		sum := sha256.Sum256([]byte(found))
		f.Digest = hex.EncodeToString(sum[:])
	}
	key := fmt.Sprint(f)
	if in.seen[key] {
		return
	}
	if in.seen == nil {
		in.seen = map[string]bool{}
	}
	in.seen[key] = true
	in.findings = append(in.findings, f)
}

// conceal takes out of the findings what may show a secret that another of them is about, whole or in part; or any, if
// not all was looked through.
func (in *Inspection) conceal() {
	if !slices.ContainsFunc(in.findings, func(f Finding) bool { return f.Secret() || f.Kind == tooMuchWork }) {
		return
	}
	for i := range in.findings {
		f := &in.findings[i]
		if in.named {
			f.Place = ""
		}
		if !f.Secret() && f.Kind != tooMuchWork {
			f.Excerpt, f.Digest = "", ""
		}
	}
}

// decides reports whether a kind of finding is a secret, or that there may be one, and has not been found yet. There
// are no more of those than the vault has, and kinds of patterns.
func (in *Inspection) decides(kind string) bool {
	if !isSecret(kind) && kind != tooMuchWork {
		return false
	}
	return !slices.ContainsFunc(in.findings, func(f Finding) bool { return f.Kind == kind })
}

const maxExcerpt = 160

// Escape makes ASCII of a text, with nothing in it that a terminal or a log acts on.
func Escape(s string) string {
	quoted := strconv.QuoteToASCII(s[:min(len(s), maxExcerpt)])
	quoted = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if len(s) > maxExcerpt {
		quoted += "..."
	}
	return quoted
}

// around is the text from here to there, with some of what stands before and behind.
func around(text string, from, to int) string {
	const margin = 40
	from, to = max(from-margin, 0), min(to+margin, len(text))
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	return text[from:to]
}
