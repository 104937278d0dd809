package wording

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
)

// Warning names a row that says what is wrong with a call.
const Warning = "WARNING"

// Row is one part of a call that is shown whole. The name is a word of pfar's. All that is in the text can be seen.
type Row struct{ Name, Text string }

// Whole is a call as a person reads it before the answer, in the order of what matters. All texts are as in a Row.
type Whole struct {
	Head   []Row
	Title  string // of the arguments
	Values []Value
	Foot   []Row // what an answer names
}

// Value is one argument.
type Value struct {
	Head     string   // its place, with a value of one line behind it; "": all that was sent, which is not JSON
	Lines    []string // of a text of several lines
	Unended  bool     // the last of Lines has no line feed
	Warnings []string
}

// Unended says that of a Value.
const Unended = "no line feed at the end"

// MaxText is how long a call may be to be approved where it is shown, in bytes. Nobody reads more there, and its
// beginning may have been written to be all that is read.
const MaxText = 64 << 10

// TooLong reports whether nobody reads the call where it is shown. It is then approved by its digest.
func (w Whole) TooLong() bool {
	n := len(w.Title)
	for _, r := range append(w.Head, w.Foot...) {
		n += len(r.Name) + len(r.Text)
	}
	for _, v := range w.Values {
		n += len(v.Head) + len(strings.Join(v.Lines, "\n")) + len(strings.Join(v.Warnings, "\n"))
	}
	return n > MaxText
}

// Read returns a call as a person reads it.
func Read(s *operator.Shown) Whole {
	w := Whole{Head: []Row{{"asks", Sentence(s)}}}
	row := func(name, text string) { w.Head = append(w.Head, Row{name, visible.Reveal(text)}) }
	row("call", s.Server+"."+s.Name)
	if s.Method != "tools/call" {
		row("method", s.Method)
	}
	for _, odd := range append(lookAlikes(s.Server, ofName), lookAlikes(s.Name, ofName)...) {
		row(Warning, "letters that look like others: "+odd)
	}
	row("client", s.Client+", session "+s.Session)
	if s.Silent > 0 {
		row("silent", Silence(s.Silent, s.Client+"/"+s.Session))
	}
	row("effect", fmt.Sprintf("%s (%s)", s.Facts.Effect, s.Facts.From.Effect))
	row("audience", fmt.Sprintf("%s (%s)", s.Facts.Audience, s.Facts.From.Audience))
	row("carries", s.Decision.Data.String()+", at most")
	row("why", s.Decision.Reason)
	row("rule", s.Decision.Rule)
	if s.Decision.Once {
		row(Warning, "private data and strangers' text have met in this session: "+
			"this call could carry the one out on behalf of the other")
	}
	for _, f := range s.Findings {
		row(Warning, "an inspector says: "+f)
	}
	for _, from := range s.Sources {
		at := from.At.Local().Format("2006-01-02 15:04:05 MST")
		row("seen", fmt.Sprintf("%s.%s at %s: %s", from.Server, from.Tool, at, from.Label))
	}
	if len(s.Masked) > 0 {
		row("hidden", "secrets of the vault: "+strings.Join(s.Masked, ", "))
	}
	w.readArguments(s)
	w.Foot = []Row{{"id", visible.Reveal(s.ID)}, {"digest", visible.Reveal(s.Digest)}}
	return w
}

func (w *Whole) readArguments(s *operator.Shown) {
	sum := sha256.Sum256(s.Arguments)
	shown := ""
	if len(s.Masked) == 0 {
		shown = ", SHA-256 " + hex.EncodeToString(sum[:])[:16]
	}
	list, err := Arguments(s.Arguments)
	if err != nil {
		w.Title = fmt.Sprintf("arguments of %d bytes that are not JSON%s", len(s.Arguments), shown)
		w.Values = []Value{{Lines: []string{visible.Reveal(string(s.Arguments))}}}
		return
	}
	w.Title = fmt.Sprintf("arguments, %d bytes%s", len(s.Arguments), shown)
	for _, a := range list {
		w.Values = append(w.Values, readArgument(a))
	}
}

// Place is where an argument stands.
func Place(pointer string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./~"
	if name := visible.Reveal(pointer); name != "" && strings.Trim(name, plain) == "" {
		return name
	}
	return Quoted(pointer) // or it could look like a name with its value
}

// readArgument reads one value: a text of several lines as lines, anything else as JSON would write it.
func readArgument(a Argument) (v Value) {
	name := Place(a.Pointer)
	text, isText := a.Value.(string)
	switch {
	case !isText:
		value, _ := json.Marshal(a.Value) // a number, true, null, {} or []
		v.Head = name + ": " + string(value)
	case strings.Contains(strings.TrimSuffix(text, "\n"), "\n"):
		v.Head = fmt.Sprintf("%s: text of %d characters", name, utf8.RuneCountInString(text))
		for line := range strings.Lines(text) {
			whole, ended := strings.CutSuffix(line, "\n")
			v.Lines = append(v.Lines, visible.Reveal(whole))
			v.Unended = !ended
		}
	default:
		v.Head = name + ": " + Quoted(text)
	}
	s := ofText
	if Decisive(a.Pointer) {
		s = ofAddress
	}
	for _, odd := range append(lookAlikes(a.Pointer, ofName), lookAlikes(text, s)...) {
		v.Warnings = append(v.Warnings, "letters that look like others: "+odd)
	}
	if strings.ContainsFunc(a.Pointer+text, rightToLeft) {
		v.Warnings = append(v.Warnings,
			"letters that are written from right to left: it may not read in its order")
	}
	return v
}

// Silence offers a clean session for a client that came back after so many seconds of silence.
func Silence(seconds int, session string) string {
	return CameBack(seconds) + ": pfar sessions reset " + session
}

// CameBack says that a client came back after so many seconds of silence, and when a clean session is for it.
func CameBack(seconds int) string {
	return fmt.Sprintf("came back after %s; if its program began a new conversation",
		(time.Duration(seconds) * time.Second).Truncate(time.Minute))
}

// Bounds says what a grant with a call allows.
func Bounds(t operator.GrantTerms) string {
	return fmt.Sprintf("lets the session make up to %d such calls more, of %d bytes in all, within %s",
		t.Calls, t.Bytes, time.Duration(t.Seconds)*time.Second)
}
