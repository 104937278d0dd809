package block

import "regexp"

// Bounded matches texts of at most so many bytes by an anchored expression. Go writes a counted repetition out:
// {1,256} would take 245 kB of each process.
type Bounded struct {
	expression *regexp.Regexp
	most       int
}

// MustBound compiles an expression, as regexp.MustCompile does.
func MustBound(most int, expression string) Bounded {
	return Bounded{regexp.MustCompile(expression), most}
}

// MatchString reports whether the text fits.
func (b Bounded) MatchString(s string) bool { return len(s) <= b.most && b.expression.MatchString(s) }

// FindString returns a text that fits, "" for another one.
func (b Bounded) FindString(s string) string {
	if !b.MatchString(s) {
		return ""
	}
	return s
}
