package schema

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Bounds on what a violation says.
const (
	maxTold = 8
	maxPath = 1 << 10 // bytes of Path and Rule
)

// Violation says in what a value does not conform.
type Violation struct {
	Path string // JSON Pointer (RFC 6901) into the value, "" for all of it; cut off after 1 KiB
	Rule string // JSON Pointer into the schema, with its address before "#" in one of the drafts; cut off after 1 KiB
	Text string // one line, quoted, at most some KiB, of at most 8 violations: Path and Rule are those of the first
}

func (v *Violation) Error() string { return v.Text }

// refused is the violation of a value that is not checked.
func refused(format string, args ...any) *Violation {
	return &Violation{Text: "the value cannot be checked: " + fmt.Sprintf(format, args...)}
}

// violation puts into words what the library found.
func violation(e *jsonschema.ValidationError) *Violation {
	var c collection
	c.collect(e)
	var text []string
	for _, f := range c.first {
		text = append(text, f.text())
	}
	if more := c.total - len(c.first); more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	f := c.first[0]
	return &Violation{Path: cut(pointer(f.path), maxPath), Rule: cut(f.rule(), maxPath), Text: strings.Join(text, "; ")}
}

// rule returns the pointer to the keyword that is violated.
func (f finding) rule() string {
	keyword := f.err.ErrorKind.KeywordPath()
	switch f.err.ErrorKind.(type) {
	case *kind.Not:
		keyword = []string{"not"}
	case *kind.Dependency:
		keyword = append([]string{"dependencies"}, keyword[1:]...)
	}
	return rulePath(f.err.SchemaURL) + pointer(keyword)
}

func (f finding) text() string {
	what := describe(f.err.ErrorKind)
	if f.within != "" {
		what = fmt.Sprintf("the name %s: %s", quoted(f.within, maxShow), what)
	}
	rule := cut(f.rule(), maxShow)
	if !plain(rule) {
		rule = strconv.QuoteToASCII(rule)
	}
	if f.closest > 1 {
		rule += fmt.Sprintf(", the closest of %d", f.closest)
	}
	where := "at the top"
	if len(f.path) > 0 {
		where = "at " + quoted(pointer(f.path), maxShow)
	}
	return fmt.Sprintf("%s: %s (rule %s)", where, what, rule)
}
