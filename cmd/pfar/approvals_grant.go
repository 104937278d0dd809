package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/wording"
)

// grantFlags are those of approve that give a grant.
type grantFlags struct {
	tool, public bool
	length       time.Duration
	calls        int
	bytes        byteCount
}

func (f *grantFlags) flags(to *pflag.FlagSet) {
	to.BoolVar(&f.tool, "grant", false, "also let the session call this tool again, within bounds")
	to.BoolVar(&f.public, "grant-public-reads", false, "also let the session read public sources, within bounds")
	to.DurationVar(&f.length, "for", 0, "how long the grant holds, such as 1h (30m)")
	to.IntVar(&f.calls, "calls", 0, fmt.Sprintf("how many calls it covers (%d)", operator.UsualGrant.Calls))
	to.Var(&f.bytes, "bytes", "how many bytes of arguments its calls have together, such as 8k (4k)")
}

// terms are what the flags ask for, nil for no grant.
func (f *grantFlags) terms() (*operator.GrantTerms, error) {
	bounded := f.length != 0 || f.calls != 0 || f.bytes != 0
	switch {
	case f.tool && f.public:
		return nil, usage("--grant is for this tool, --grant-public-reads for all public sources: give one of them")
	case !f.tool && !f.public && bounded:
		return nil, usage("--for, --calls and --bytes are bounds of a grant: add --grant or --grant-public-reads")
	case !f.tool && !f.public:
		return nil, nil
	case f.length < 0 || f.length%time.Second != 0:
		return nil, usage("--for %s: write whole seconds, such as 30m", f.length)
	}
	seconds := int(f.length / time.Second)
	return &operator.GrantTerms{Public: f.public, Seconds: seconds, Calls: f.calls, Bytes: int64(f.bytes)}, nil
}

// words say in a question what the flags grant beside the call.
func (f *grantFlags) words(session string) string {
	t, err := f.terms()
	if t == nil || err != nil {
		return ""
	}
	t.Fill(operator.UsualGrant)
	return grantWords(*t, session)
}

// grantWords say in a question what is granted beside the call.
func grantWords(t operator.GrantTerms, session string) string {
	tool := "it"
	if t.Public {
		tool = "what only reads public sources"
	}
	return fmt.Sprintf(", and then %s up to %d times within %s, with up to %d bytes of arguments in all, in session %s",
		tool, t.Calls, time.Duration(t.Seconds)*time.Second, t.Bytes, visible.Reveal(session))
}

// renderGrants says which grants can be given with a call, and why others cannot.
func renderGrants(row func(name, text string), offers []operator.GrantOffer) {
	for _, o := range offers {
		flag, name := "--grant", "grant"
		if o.Public {
			flag, name = "--grant-public-reads", "reads"
		}
		if o.Why != "" {
			row(name, "no grant: "+o.Why)
			continue
		}
		row(name, flag+" "+wording.Bounds(o.GrantTerms))
	}
}

// byteCount is a number of bytes, as people write it: 512, 4k.
type byteCount int64

func (s *byteCount) String() string { return strconv.FormatInt(int64(*s), 10) }
func (s *byteCount) Type() string   { return "size" }

func (s *byteCount) Set(text string) error {
	digits, kilo := strings.CutSuffix(strings.ToLower(text), "k")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a number of bytes: write 512 or 4k", text)
	}
	if *s = byteCount(n); kilo {
		*s *= 1 << 10
	}
	return nil
}
