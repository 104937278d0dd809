package schema

import (
	"net/netip"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	maxWord   = 64       // bytes of a string that a pattern or a format bounds
	maxSearch = 1 << 14  // parts of a value, times subschemas, that are looked at for free text
	maxLookAt = 64 << 10 // bytes of a value
)

// FreeText reports whether a value holds text that the schema leaves to whoever made it: a string, or the name of a
// member, that is not bound to constants, to a date, time, UUID or address, or by a pattern to at most 64 letters,
// digits and signs without spaces. Of a value that is no JSON, or takes too long to look at, it is said that it does.
// The value is one that Check let pass.
func (s *Schema) FreeText(value []byte) bool {
	if len(value) > maxLookAt {
		return true
	}
	d := decoder{s: unsafe.String(unsafe.SliceData(value), len(value)), maxDepth: maxDepth, maxNodes: maxNodes}
	tree, err := d.document()
	if err != nil {
		return true
	}
	b := bounds{schemaText: s.text}
	return !b.value(s.compiled, tree)
}

// bounds looks for what bounds the strings of a value.
type bounds struct {
	schemaText any
	steps      int
}

// format is the one that a schema is annotated with.
func (b *bounds) format(s *jsonschema.Schema) string {
	if b.schemaText == nil || !strings.HasPrefix(s.Location, base+"#") {
		return ""
	}
	at := b.schemaText
	for name := range strings.SplitSeq(strings.TrimPrefix(rulePath(s.Location), "/"), "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch in := at.(type) {
		case map[string]any:
			if in[name] != nil {
				at = in[name]
				continue
			}
		case []any:
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(in) {
				at = in[i]
				continue
			}
		}
		if name != "" {
			return ""
		}
	}
	object, _ := at.(map[string]any)
	format, _ := object["format"].(string)
	return format
}

// value reports whether a schema binds all text in v. Several in one place do not add up: one has to bind all of it.
func (b *bounds) value(s *jsonschema.Schema, v any) bool {
	if b.steps++; b.steps > maxSearch {
		return false
	}
	switch v := v.(type) {
	case string:
		if b.text(s, v) {
			return true
		}
	case []any:
		if b.items(s, v) {
			return true
		}
	case map[string]any:
		if b.members(s, v) {
			return true
		}
	default:
		return true
	}
	for _, all := range append([]*jsonschema.Schema{s.Ref}, s.AllOf...) {
		if all != nil && b.value(all, v) {
			return true
		}
	}
	return slices.ContainsFunc([][]*jsonschema.Schema{s.AnyOf, s.OneOf}, func(some []*jsonschema.Schema) bool {
		return len(some) > 0 && !slices.ContainsFunc(some, func(one *jsonschema.Schema) bool {
			return allows(one, v) &&
				!b.value(one, v)
		})
	})
}

// allows reports whether a schema may be what a value conforms to.
func allows(s *jsonschema.Schema, v any) bool {
	if s.Bool != nil {
		return *s.Bool
	}
	if s.Types == nil {
		return true
	}
	return slices.ContainsFunc(s.Types.ToStrings(), func(t string) bool { return kindOf[t] == kindBit(v) })
}

func (b *bounds) text(s *jsonschema.Schema, v string) bool {
	if s.Const != nil || s.Enum != nil {
		return true
	}
	return len(v) <= maxWord && (isWord(s) || conforms(b.format(s), v))
}

func (b *bounds) items(s *jsonschema.Schema, v []any) bool {
	prefix, rest := itemsOf(s)
	for i, item := range v {
		one := rest
		if i < len(prefix) {
			one = prefix[i]
		}
		if one == nil {
			one = free
		}
		if !b.value(one, item) {
			return false
		}
	}
	return true
}

// free is a schema that binds nothing.
var free = new(jsonschema.Schema)

// itemsOf returns the schemas of the first items of an array, and that of those behind them.
func itemsOf(s *jsonschema.Schema) (prefix []*jsonschema.Schema, rest *jsonschema.Schema) {
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		return nil, items
	case []*jsonschema.Schema:
		rest, _ = s.AdditionalItems.(*jsonschema.Schema)
		return items, rest
	}
	return s.PrefixItems, s.Items2020
}

func (b *bounds) members(s *jsonschema.Schema, v map[string]any) bool {
	for name, member := range v {
		sub := s.Properties[name]
		if sub == nil {
			if sub = b.other(s, name); sub == nil {
				return false
			}
		}
		if !b.value(sub, member) {
			return false
		}
	}
	return true
}

// other returns the schema of a member that is not among the properties; nil if its name is not bound, or nothing is
// said of it.
func (b *bounds) other(s *jsonschema.Schema, name string) *jsonschema.Schema {
	if len(name) > maxWord {
		return nil
	}
	for re, sub := range s.PatternProperties {
		if boundedPattern(re.String(), true) && re.MatchString(name) {
			return sub
		}
	}
	if names := namesOf(s); names != nil && b.text(names, name) {
		sub, _ := s.AdditionalProperties.(*jsonschema.Schema)
		return sub
	}
	return nil
}

// namesOf is what a schema says of members' names. newGraph has put it elsewhere.
func namesOf(s *jsonschema.Schema) *jsonschema.Schema {
	for _, e := range s.Extensions {
		if n, ok := e.(names); ok {
			return n.schema
		}
	}
	return s.PropertyNames
}

// isWord reports whether a schema has a pattern that only words conform to, of at most maxWord characters.
func isWord(s *jsonschema.Schema) bool {
	return s.Pattern != nil && boundedPattern(s.Pattern.String(), s.MaxLength != nil && *s.MaxLength <= maxWord)
}

// boundedPattern reports whether all that matches a pattern is letters, digits and a few signs from beginning to end,
// and not more than maxWord, if something else does not see to that.
func boundedPattern(pattern string, short bool) bool {
	re, err := syntax.Parse(translate(pattern, true), syntax.Perl)
	if err != nil {
		return false
	}
	alternatives := []*syntax.Regexp{re}
	for len(alternatives) == 1 && (alternatives[0].Op == syntax.OpAlternate || alternatives[0].Op == syntax.OpCapture) {
		alternatives = alternatives[0].Sub
	}
	for _, one := range alternatives {
		if one.Op != syntax.OpConcat || one.Sub[0].Op != syntax.OpBeginText || one.Sub[len(one.Sub)-1].Op != syntax.OpEndText {
			return false
		}
		if n := longest(one); n < 0 || n > maxWord && !short {
			return false
		}
	}
	return true
}

const unlimited = 1 << 20

// longest is the greatest number of characters that a pattern matches, -1 if there are others among them than words
// have.
func longest(re *syntax.Regexp) int {
	sum := 0
	switch re.Op {
	case syntax.OpLiteral:
		if slices.ContainsFunc(re.Rune, func(r rune) bool { return !inWord(r) }) {
			return -1
		}
		return len(re.Rune)
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i+1] > 0x7f {
				return -1
			}
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if !inWord(r) {
					return -1
				}
			}
		}
		return 1
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return 0
	case syntax.OpConcat, syntax.OpAlternate, syntax.OpCapture, syntax.OpQuest, syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
	default:
		return -1
	}
	for _, sub := range re.Sub {
		n := longest(sub)
		switch {
		case n < 0:
			return -1
		case re.Op == syntax.OpAlternate:
			sum = max(sum, n)
		case n > 0 && (re.Op == syntax.OpStar || re.Op == syntax.OpPlus || re.Op == syntax.OpRepeat && re.Max < 0):
			sum = unlimited
		case re.Op == syntax.OpRepeat:
			sum = n * re.Max
		default:
			sum += n
		}
		sum = min(sum, unlimited)
	}
	return sum
}

func inWord(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r > 0 && strings.ContainsRune("_-.:/@+#", r)
}

var (
	duration = regexp.MustCompile(`^P(\d{1,9}[YMWD])*(T(\d{1,9}(\.\d{1,9})?[HMS])+)?$`)
	uuid     = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
)

// formats are those that leave no room for text.
var formats = map[string]func(string) bool{
	"date":      func(s string) bool { _, err := time.Parse(time.DateOnly, s); return err == nil },
	"time":      func(s string) bool { _, err := time.Parse("15:04:05.999999999Z07:00", s); return err == nil },
	"date-time": func(s string) bool { _, err := time.Parse(time.RFC3339Nano, s); return err == nil },
	"duration":  duration.MatchString,
	"uuid":      uuid.MatchString,
	"ipv4":      func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() },
	"ipv6":      func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is6() && a.Zone() == "" },
}

// conforms reports whether a string is of a format that leaves no room for text.
func conforms(format, s string) bool {
	f := formats[format]
	return f != nil && f(s)
}
