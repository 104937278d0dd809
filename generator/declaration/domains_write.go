package declaration

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// WithDomains returns the source of a declaration with these entries behind those of its allowed_domains, and reports
// what stands there already by leaving it out. Every other byte stays. A declaration that would be wrong is refused, as
// hcl.Diagnostics.
func WithDomains(filename string, src []byte, entries []string, o Options) ([]byte, error) {
	const key = "allowed_domains"
	s, diags := Parse(filename, src, o)
	if s == nil {
		return nil, diags
	}
	var more []string
	for _, e := range entries {
		at, err := parseEndpoint(e)
		if err != nil {
			return nil, fmt.Errorf("%q cannot be allowed: %s", e, domainFault(err))
		}
		if !slices.Contains(s.Allowed, at) && !slices.Contains(more, at.String()) {
			more = append(more, at.String())
		}
	}
	if len(more) == 0 {
		return src, nil
	}
	b := append([]byte(key+" = "+hclTexts(more)+"\n"), src...)
	if s.Says(key) {
		whole := s.Place(key)
		last := whole.Start.Byte
		if n := len(s.Allowed); n > 0 {
			last = s.Place(fmt.Sprintf("%s[%d]", key, n-1)).End.Byte
		}
		b = extended(src, whole.Start.Byte, last, whole.End.Byte, more)
	}
	changed, diags := Parse(filename, b, o)
	if changed == nil {
		return nil, diags
	}
	if len(changed.Allowed) != len(s.Allowed)+len(more) {
		const format = "the list in %q cannot be extended: add %s to allowed_domains yourself"
		return nil, fmt.Errorf(format, filename, hclTexts(more))
	}
	return b, nil
}

// extended puts words behind the last entry of a list that stands in src[start:end]. A list with a line for each entry
// gets a line for each word, before the one that ends it: comments stay beside what they are about.
func extended(src []byte, start, last, end int, words []string) []byte {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Text(w)
	}
	var b []byte
	closing := end - 1 // the bracket
	line := bytes.LastIndexByte(src[:closing], '\n') + 1
	comma := bytes.HasPrefix(bytes.TrimLeft(src[min(last, closing):closing], " \t"), []byte(","))
	entries := last > start
	if beside := len(bytes.TrimSpace(src[line:closing])) > 0; beside || line <= start {
		b = append(b, src[:max(last, start+1)]...)
		switch {
		case entries && !comma:
			b = append(b, ", "...)
		case entries:
			b = append(b, ',')
			b, last = append(b, ' '), last+bytes.IndexByte(src[last:closing], ',')+1
		}
		b = append(b, strings.Join(quoted, ", ")...)
		return append(b, src[max(last, start+1):]...)
	}
	indent := "  " + string(src[line:closing])
	if entries {
		at := bytes.LastIndexByte(src[:last], '\n') + 1
		indent = string(src[at : at+len(src[at:last])-len(bytes.TrimLeft(src[at:last], " \t"))])
	}
	b = append(b, src[:max(last, start+1)]...)
	if entries && !comma {
		b = append(b, ',')
	}
	b = append(b, src[max(last, start+1):line]...)
	for _, q := range quoted {
		b = append(b, indent+q+",\n"...)
	}
	return append(b, src[line:]...)
}
