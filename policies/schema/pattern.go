package schema

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"time"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds on patterns.
const (
	maxPattern      = 16 << 10 // bytes of one
	maxBacktracking = 4 << 10  // bytes of one that RE2 cannot do
	maxInstructions = 1 << 16  // of all patterns of a schema: x{1000} is a thousand
	maxTried        = 16 << 10 // bytes of a string that a backtracking pattern is tried on
	maxRecursion    = 1000     // of a backtracking pattern's groups
	matchTime       = 100 * time.Millisecond
	checkTime       = 500 * time.Millisecond // of one check, for all its backtracking patterns
)

// patterns compiles a schema's regular expressions, each once. They are those of ECMA-262 with the "u" flag, as JSON
// Schema says; what Go's linear-time matcher cannot do (look-around, back references, x{2000}) is left to one that
// backtracks, against the clock.
type patterns struct {
	known        map[string]pattern
	instructions int
}

func newPatterns() *patterns { return &patterns{known: map[string]pattern{}} }

// pattern is a regular expression of either kind.
type pattern interface {
	jsonschema.Regexp
	// size is the number of instructions, 0 for a pattern that backtracks.
	size() int64
}

// linear is a pattern whose matching takes at most its size for each byte.
type linear struct {
	re   *regexp.Regexp
	text string
	n    int64
}

func (p *linear) MatchString(s string) bool { return p.re.MatchString(s) }
func (p *linear) String() string            { return p.text }
func (p *linear) size() int64               { return p.n }

// backtracking is a pattern whose matching may take any time.
type backtracking struct {
	re   *regexp2.Regexp
	text string
}

// MatchString panics if the time is over: the library asks for yes or no, and Check makes a violation of the panic.
// It has been tried on the same string just before, so it hardly ever is.
func (p *backtracking) MatchString(s string) bool {
	ok, err := p.try(s)
	if err != nil {
		panic(err.Error())
	}
	return ok
}

func (p *backtracking) try(s string) (bool, error) {
	if len(s) > maxTried {
		return false, fmt.Errorf("the pattern %.100q is not tried on strings of more than %d bytes", p.text, maxTried)
	}
	ok, err := p.re.MatchString(s)
	if err != nil {
		return false, fmt.Errorf("the pattern %.100q takes too long", p.text)
	}
	return ok, nil
}

func (p *backtracking) String() string { return p.text }
func (p *backtracking) size() int64    { return 0 }

// compile is the library's RegexpEngine. The library compiles a pattern twice, and the second time costs nothing.
func (ps *patterns) compile(text string) (jsonschema.Regexp, error) {
	if p, ok := ps.known[text]; ok {
		return p, nil
	}
	if len(text) > maxPattern {
		return nil, fmt.Errorf("a pattern of %d bytes, more than %d", len(text), maxPattern)
	}
	p, err := ps.build(text)
	if err != nil {
		return nil, err
	}
	ps.known[text] = p
	return p, nil
}

func (ps *patterns) build(text string) (pattern, error) {
	for _, t := range []string{translate(text, true), text} {
		tree, err := syntax.Parse(t, syntax.Perl)
		if err != nil {
			continue
		}
		n := instructions(tree)
		if ps.instructions += n; ps.instructions > maxInstructions {
			return nil, fmt.Errorf("patterns of more than %d steps in all", maxInstructions)
		}
		if re, err := regexp.Compile(t); err == nil {
			return &linear{re, text, int64(n)}, nil
		}
	}
	if len(text) > maxBacktracking {
		return nil, fmt.Errorf("a pattern of %d bytes, more than %d, that only backtracking can match", len(text), maxBacktracking)
	}
	if deep(text) {
		return nil, fmt.Errorf("a pattern with more than %d groups", maxRecursion)
	}
	t := translate(text, false)
	re, err := regexp2.Compile(t, regexp2.ECMAScript|regexp2.Unicode)
	if err != nil {
		if re, err = regexp2.Compile(t, regexp2.RE2); err != nil {
			return nil, err
		}
	}
	re.MatchTimeout = matchTime
	return &backtracking{re, text}, nil
}

// instructions returns about how many instructions the program of a pattern will have. It is asked before there is
// one: 4 KiB of x{1000} are a program of 100 MB.
func instructions(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n += instructions(sub)
		if n > maxInstructions {
			return n
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

// deep reports whether a pattern could nest its groups too deeply for a compiler that calls itself for each.
func deep(text string) bool {
	n := 0
	for i := range len(text) {
		if text[i] == '(' {
			n++
		}
	}
	return n > maxRecursion
}
