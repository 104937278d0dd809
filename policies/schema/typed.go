package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// Bounds on what fits into one value of a typed schema, whatever its server puts there. They are what keeps text out of
// numbers and lists as well: 2,048 bits are 32 numbers, or 128 small ones, and what is chosen among words spells at
// most 13 letters.
const (
	maxTypedBits   = 2048
	maxTypedWords  = 64 // bits of those, in the choice of words and of members
	maxTypedValues = 128
	maxTypedEnum   = 256
	maxTypedParts  = 4096 // of the schema, each as often as it is referred to
	maxTypedBytes  = 64 << 10
)

// Typed is a schema whose values have no room for text: numbers, truth values, words of a list, dates, addresses, and a
// bounded number of them all. It never changes, and may be used by many goroutines at once.
type Typed struct{ write write }

// write appends a value as the schema has it, written anew. It reports false if the value is another.
type write func(dst []byte, v any) ([]byte, bool)

// room is the most that fits into a value: bits in all, bits of those in the choice of words, and how many values it is
// made of.
type room struct{ bits, words, values float64 }

func (r room) and(s room) room { return room{r.bits + s.bits, r.words + s.words, r.values + s.values} }

// chosen is the room of one among n. Whoever chooses between words spells with them, and between others as well.
func (r room) chosen(n int64) room {
	bits := math.Log2(float64(n))
	return room{r.bits + bits, r.words + bits, r.values}
}

// ReadTyped finds out whether a schema is typed. The error says why not. Nothing but what it says itself counts: what
// limits values further makes no difference, and a keyword that is not known allows nothing.
func ReadTyped(raw []byte) (*Typed, error) {
	if len(raw) > maxTypedBytes {
		return nil, fmt.Errorf("the schema has more than %d bytes", maxTypedBytes)
	}
	d := decoder{s: string(raw), maxDepth: maxNesting, maxNodes: maxNodes}
	root, err := d.document()
	if err != nil {
		return nil, err
	}
	r := typedReader{root: root}
	if object, ok := root.(map[string]any); !ok || object["type"] != "object" {
		return nil, errors.New("the schema is not of an object")
	}
	w, most, err := r.schema(root)
	switch {
	case err != nil:
		return nil, err
	case most.values > maxTypedValues:
		return nil, fmt.Errorf("one value may be made of %.0f, at most %d are allowed", most.values, maxTypedValues)
	case most.words > maxTypedWords:
		return nil, fmt.Errorf("the choice of words and members has %.0f bits, at most %d are allowed",
			math.Ceil(most.words), maxTypedWords)
	case most.bits > maxTypedBits:
		return nil, fmt.Errorf("%.0f bits fit into one value, at most %d are allowed", math.Ceil(most.bits), maxTypedBits)
	}
	return &Typed{w}, nil
}

var errNotTyped = errors.New("the value has more than its schema types")

// Extract returns a value that was found to conform to the schema, written anew: nothing is left of it but what the
// schema types, members in the order of their names. An error is of one that is more than that, or that two programs
// may read differently.
func (t *Typed) Extract(value []byte) ([]byte, error) {
	if len(value) > maxTypedBytes {
		return nil, fmt.Errorf("the value has more than %d bytes", maxTypedBytes)
	}
	// The text is the caller's memory, which is only read, and of which nothing is kept.
	d := decoder{s: unsafe.String(unsafe.SliceData(value), len(value)), maxDepth: maxDepth, maxNodes: maxNodes}
	tree, err := d.document()
	if err != nil {
		return nil, errors.New("the value is not JSON that all programs read alike")
	}
	b, ok := t.write(nil, tree)
	if !ok {
		return nil, errNotTyped
	}
	return b, nil
}

// typedReader makes of a schema what writes its values.
type typedReader struct {
	root  any
	parts int
	refs  []string // that lead to what is read now
}

func (r *typedReader) schema(at any) (write, room, error) {
	if r.parts++; r.parts > maxTypedParts {
		return nil, room{}, fmt.Errorf("the schema has more than %d parts", maxTypedParts)
	}
	s, ok := at.(map[string]any)
	if !ok {
		return nil, room{}, errors.New("a part of it allows anything")
	}
	if ref, ok := s["$ref"].(string); ok {
		return r.ref(ref)
	}
	if value, ok := s["const"]; ok {
		return r.enum([]any{value})
	}
	if values, ok := s["enum"].([]any); ok {
		return r.enum(values)
	}
	switch types := s["type"].(type) {
	case string:
		return r.typed(types, s)
	case []any:
		return r.choice(len(types), func(i int) (write, room, error) {
			kind, _ := types[i].(string)
			return r.typed(kind, s)
		})
	}
	for _, some := range [...]string{"anyOf", "oneOf"} {
		if list, ok := s[some].([]any); ok {
			return r.choice(len(list), func(i int) (write, room, error) { return r.schema(list[i]) })
		}
	}
	return nil, room{}, errors.New("a part of it has no type")
}

// ref reads what a reference leads to, by a path in the schema itself.
func (r *typedReader) ref(ref string) (write, room, error) {
	if slices.Contains(r.refs, ref) {
		return nil, room{}, errors.New("a reference leads to itself")
	}
	path, ok := strings.CutPrefix(ref, "#/")
	at := r.root
	for name := range strings.SplitSeq(path, "/") {
		in, _ := at.(map[string]any)
		if at = in[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]; at == nil {
			break
		}
	}
	if !ok || at == nil {
		return nil, room{}, errors.New("a reference leads to none of its parts")
	}
	r.refs = append(r.refs, ref)
	defer func() { r.refs = r.refs[:len(r.refs)-1] }()
	return r.schema(at)
}

func (r *typedReader) typed(kind string, s map[string]any) (write, room, error) {
	switch kind {
	case "null":
		return writeNull, room{values: 1}, nil
	case "boolean":
		return writeTruth, room{bits: 1, values: 1}, nil
	case "integer":
		w, bits := integers(s)
		return w, room{bits: bits, values: 1}, nil
	case "number":
		return writeNumber, room{bits: 64, values: 1}, nil
	case "string":
		format, _ := s["format"].(string)
		f, ok := typedFormats[format]
		if !ok {
			return nil, room{}, errors.New("a part of it is text")
		}
		return f.write, room{bits: f.bits, values: 1}, nil
	case "array":
		return r.array(s)
	case "object":
		return r.object(s)
	}
	return nil, room{}, errors.New("a part of it has no type")
}

// What words may look like that a server chooses among, and names of members: no sentence fits into one.
var (
	typedWord   = regexp.MustCompile(`^[A-Za-z0-9]+([_./+-][A-Za-z0-9]+){0,2}$`)
	typedMember = regexp.MustCompile(`^_?[A-Za-z0-9]+([_.-][A-Za-z0-9]+){0,3}$`)
)

const (
	maxTypedWord   = 24
	maxTypedMember = 32
)

func (r *typedReader) enum(values []any) (write, room, error) {
	if r.parts += len(values); len(values) == 0 || len(values) > maxTypedEnum {
		return nil, room{}, fmt.Errorf("a list of values has %d, 1 to %d are allowed", len(values), maxTypedEnum)
	}
	most := room{values: 1, bits: math.Log2(float64(len(values)))}
	known := make(map[string]bool, len(values))
	for _, v := range values {
		if s, ok := v.(string); ok {
			if len(s) > maxTypedWord || !typedWord.MatchString(s) {
				return nil, room{}, fmt.Errorf("one of its values is not a word of at most %d letters", maxTypedWord)
			}
			most.words = most.bits
		}
		b, ok := writeScalar(nil, v)
		if !ok {
			return nil, room{}, errors.New("one of its values is not a word, a number, true or false")
		}
		known[string(b)] = true
	}
	return func(dst []byte, v any) ([]byte, bool) {
		b, ok := writeScalar(dst, v)
		return b, ok && known[string(b[len(dst):])]
	}, most, nil
}

// choice is a value of one of n kinds.
func (r *typedReader) choice(n int, read func(i int) (write, room, error)) (write, room, error) {
	if r.parts += n; n == 0 {
		return nil, room{}, errors.New("a part of it has no type")
	}
	var all []write
	var most room
	for i := range n {
		w, m, err := read(i)
		if err != nil {
			return nil, room{}, err
		}
		all = append(all, w)
		most = room{max(most.bits, m.bits), max(most.words, m.words), max(most.values, m.values)}
	}
	return func(dst []byte, v any) ([]byte, bool) {
		for _, w := range all {
			if b, ok := w(dst, v); ok {
				return b, true
			}
		}
		return nil, false
	}, most.chosen(int64(n)), nil
}

func (r *typedReader) array(s map[string]any) (write, room, error) {
	most, bounded := whole(s["maxItems"])
	if !bounded || most < 0 || most > maxTypedValues {
		return nil, room{}, fmt.Errorf("a list has no maxItems of at most %d", maxTypedValues)
	}
	if s["prefixItems"] != nil {
		return nil, room{}, errors.New("a list has prefixItems")
	}
	item, each, err := r.schema(s["items"])
	if err != nil {
		return nil, room{}, err
	}
	n := float64(most)
	all := room{each.bits * n, each.words * n, each.values*n + 1}
	return func(dst []byte, v any) ([]byte, bool) {
		list, ok := v.([]any)
		if !ok || len(list) > int(most) {
			return nil, false
		}
		dst = append(dst, '[')
		for i, one := range list {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, ok = item(dst, one); !ok {
				return nil, false
			}
		}
		return append(dst, ']'), true
	}, all.chosen(most + 1), nil
}

func (r *typedReader) object(s map[string]any) (write, room, error) {
	if other, ok := s["additionalProperties"].(bool); !ok || other {
		return nil, room{}, errors.New("an object does not say additionalProperties = false")
	}
	if s["patternProperties"] != nil {
		return nil, room{}, errors.New("an object has patternProperties")
	}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	if len(required) > len(properties) {
		return nil, room{}, errors.New("an object requires members that it has not")
	}
	members := make(map[string]write, len(properties))
	all := room{values: 1}
	names := slices.Sorted(maps.Keys(properties))
	for _, name := range names {
		if len(name) > maxTypedMember || !typedMember.MatchString(name) {
			return nil, room{}, fmt.Errorf("the name of a member is not a word of at most %d letters", maxTypedMember)
		}
		w, most, err := r.schema(properties[name])
		if err != nil {
			return nil, room{}, fmt.Errorf("%s: %w", name, err)
		}
		members[name] = w
		if all = all.and(most); !slices.Contains(required, any(name)) {
			all = all.and(room{bits: 1, words: 1})
		}
	}
	return func(dst []byte, v any) ([]byte, bool) {
		object, ok := v.(map[string]any)
		dst = append(dst, '{')
		written := 0
		for _, name := range names {
			member, given := object[name]
			if !given {
				continue
			}
			if written++; written > 1 {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '"'), name...), '"', ':')
			if dst, ok = members[name](dst, member); !ok {
				return nil, false
			}
		}
		return append(dst, '}'), ok && written == len(object)
	}, all, nil
}

// whole is a keyword's value, a whole number.
func whole(v any) (int64, bool) {
	n, _ := v.(json.Number)
	f, err := strconv.ParseFloat(string(n), 64)
	return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) <= safeInteger
}

const safeInteger = 1 << 53 // up to which all programs read the same

// integers are those that a schema allows, and how many bits they have.
func integers(s map[string]any) (write, float64) {
	least, low := whole(s["minimum"])
	most, high := whole(s["maximum"])
	if !low || !high || least > most {
		least, most = -safeInteger, safeInteger
	}
	return func(dst []byte, v any) ([]byte, bool) {
		f, ok := exact(v)
		if !ok || f != math.Trunc(f) || f < float64(least) || f > float64(most) {
			return nil, false
		}
		return strconv.AppendInt(dst, int64(f), 10), true
	}, math.Log2(float64(most) - float64(least) + 1)
}

// exact is a number that is what programs make of it: so many have up to 17 digits, and whole ones up to 2^53.
func exact(v any) (float64, bool) {
	n, _ := v.(json.Number)
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return 0, false
	}
	given, _ := new(big.Rat).SetString(string(n))
	read, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	return f, given.Cmp(read) == 0
}

func writeNumber(dst []byte, v any) ([]byte, bool) {
	f, ok := exact(v)
	b, err := json.Marshal(f)
	return append(dst, b...), ok && err == nil
}

func writeTruth(dst []byte, v any) ([]byte, bool) {
	t, ok := v.(bool)
	return strconv.AppendBool(dst, t), ok
}

func writeNull(dst []byte, v any) ([]byte, bool) { return append(dst, "null"...), v == nil }

// writeScalar writes a value of an enum. Of a string it is for the caller to see that it is one of the schema's.
func writeScalar(dst []byte, v any) ([]byte, bool) {
	switch v := v.(type) {
	case nil:
		return writeNull(dst, v)
	case bool:
		return writeTruth(dst, v)
	case json.Number:
		return writeNumber(dst, v)
	case string:
		return append(append(append(dst, '"'), v...), '"'), !strings.ContainsAny(v, `"\`)
	}
	return nil, false
}

// typedFormat is a format of strings that no text has, and how many bits they have.
type typedFormat struct {
	form *regexp.Regexp
	is   func(string) bool
	bits float64
}

func (f typedFormat) write(dst []byte, v any) ([]byte, bool) {
	s, ok := v.(string)
	if !ok || !f.form.MatchString(s) || !f.is(s) {
		return nil, false
	}
	return append(append(append(dst, '"'), s...), '"'), true
}

// typedFormats are the formats: what has form is ASCII and has no letters but those that every such string may have.
var typedFormats = map[string]typedFormat{
	"date":      {regexp.MustCompile(`^\d{4}-\d\d-\d\d$`), formats["date"], 22},
	"time":      {regexp.MustCompile(`^\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$`), formats["time"], 60},
	"date-time": {regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$`), formats["date-time"], 82},
	"duration":  {regexp.MustCompile(`^P(\d{1,4}Y)?(\d{1,4}M)?(\d{1,4}W)?(\d{1,4}D)?(T(\d{1,4}H)?(\d{1,4}M)?(\d{1,4}S)?)?$`), typedDuration, 100},
	"uuid":      {regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`), formats["uuid"], 128},
	"ipv4":      {regexp.MustCompile(`^[0-9.]+$`), formats["ipv4"], 32},
	"ipv6":      {regexp.MustCompile(`^[0-9a-f:]+$`), typedAddress, 128},
}

// typedDuration reports whether a duration has at least one part, and no T without one.
func typedDuration(s string) bool { return s != "P" && !strings.HasSuffix(s, "T") }

// typedAddress reports whether an IPv6 address is written as every program writes it: else how it is written would say
// something.
func typedAddress(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && a.String() == s
}
