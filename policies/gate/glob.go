package gate

import "strings"

// Pattern is a name in which each * stands for any characters, or for none. "" matches nothing.
type Pattern string

// Match reports whether the whole name fits.
func (p Pattern) Match(name string) bool {
	first, rest, wild := strings.Cut(string(p), "*")
	if !wild {
		return p != "" && string(p) == name
	}
	name, ok := strings.CutPrefix(name, first)
	if !ok {
		return false
	}
	for {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(part):], more
	}
}

// Overlaps reports whether some name fits both.
func (p Pattern) Overlaps(q Pattern) bool {
	if p == "" || q == "" {
		return false
	}
	fits := make([]bool, len(q)+1) // fits[j]: what was read of p and q[:j] have a name in common
	fits[0] = true
	for j := 1; j <= len(q); j++ {
		fits[j] = fits[j-1] && q[j-1] == '*'
	}
	for i := range len(p) {
		diagonal := fits[0]
		fits[0] = fits[0] && p[i] == '*'
		for j := 1; j <= len(q); j++ {
			above := fits[j]
			if p[i] == '*' || q[j-1] == '*' {
				fits[j] = above || fits[j-1]
			} else {
				fits[j] = diagonal && p[i] == q[j-1]
			}
			diagonal = above
		}
	}
	return fits[len(q)]
}

// Covers reports whether every name that fits q fits p; false may also mean that this takes longer to tell. A * of q is
// a character that only a * of p stands for.
func (p Pattern) Covers(q Pattern) bool { return q != "" && p.Match(string(q)) }

// Weight orders patterns by how much they say: a name outweighs all patterns, one with more characters another, and
// each of them "", which stands for the whole server.
func (p Pattern) Weight() int {
	stars := strings.Count(string(p), "*")
	switch {
	case p == "":
		return -1
	case stars == 0:
		return 1 << 20
	}
	return len(p) - stars
}

func matchAny(patterns []Pattern, name string) bool {
	for _, p := range patterns {
		if p.Match(name) {
			return true
		}
	}
	return false
}
