package provenance

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

// TestWords: words that several ask about say to each what they would say if nobody else had asked, also if there are
// too many fingerprints to keep, and after their memory was given to others.
func TestWords(t *testing.T) {
	const theirs = "https://shop.example/collect?note="
	r := read(t, DefaultLimits)
	r.Note("laptop", "default", gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}, result(t, theirs))
	long := strings.Repeat("nobody has read these words of the call, and there are many of them. ", 2000)
	for name, c := range map[string]struct {
		v                any
		carries, chosen  bool
		fingerprintsKept bool
	}{
		"neither":              {"weather in Vienna", false, false, true},
		"private":              {secret, true, false, true},
		"strangers'":           {theirs, false, true, true},
		"both":                 {[]string{theirs, secret}, true, true, true},
		"neither, long":        {long, false, false, false},
		"private, long":        {long + secret, true, false, false},
		"both, long":           {[]string{secret, long, theirs}, true, true, false},
		"both, compressed":     {[]string{zipped(long + secret), zipped(long + theirs)}, true, true, false},
		"strangers', a name":   {map[string]any{theirs: long}, false, true, false},
		"no text":              {map[string]any{}, false, false, true},
		"private, as a number": {numbers(secret), true, false, true},
	} {
		arguments := quote(t, c.v)
		w := WordsOf(arguments)
		ask := func(when string) {
			t.Helper()
			for range 2 {
				carries := r.Carries("laptop", "default", w, gate.Public) != ""
				if chosen := r.Chosen("laptop", "default", w) != ""; carries != c.carries || chosen != c.chosen {
					t.Errorf("%s, %s: private %t, strangers' %t", name, when, carries, chosen)
				}
				if r.Carries("laptop", "default", w, gate.Sensitive) != "" {
					t.Errorf("%s, %s: not for those who may see it", name, when)
				}
			}
		}
		ask("at first")
		if kept := w.prints != nil; kept != c.fingerprintsKept {
			t.Errorf("%s: fingerprints are kept: %t", name, kept)
		}
		w.Release()
		w.Release()
		other := WordsOf(quote(t, theirs+secret)) // gets the memory
		if r.Carries("laptop", "default", other, gate.Public) == "" {
			t.Error("other words are not found")
		}
		ask("after they were released")
		w.Release()
		other.Release()
		for _, b := range [][]byte{nil, {}, []byte("{ }"), quote(t, "other")} {
			if w.Are(b) || !w.Are(arguments) || (*Words)(nil).Are(b) {
				t.Errorf("%s: words are those of %q", name, b)
			}
		}
	}
	for name, none := range map[string]*Words{"none": nil, "zero": {}, "of nothing": WordsOf(nil)} {
		if r.Carries("laptop", "default", none, gate.Public) != "" || r.Carries("phone", "x", none, gate.Public) != unknown {
			t.Errorf("%s: what is asked is not whether the session is known", name)
		}
		if none.Are(nil) || none.Are([]byte{}) {
			t.Errorf("%s: they are the words of something", name)
		}
		none.Release()
	}
}
