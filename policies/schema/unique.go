package schema

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// unique stands in for the library's uniqueItems, which hashes [[1],2] and [[1,2]] to the same value: of a list of
// lists made for it, it compares each with each.
type unique struct{}

func (unique) Validate(ctx *jsonschema.ValidatorContext, v any) {
	list, ok := v.([]any)
	if !ok {
		return
	}
	seen := make(map[string]int, len(list))
	var key []byte
	for i, item := range list {
		key = appendKey(key[:0], item)
		if first, twice := seen[string(key)]; twice {
			ctx.AddError(&kind.UniqueItems{Duplicates: [2]int{first, i}})
			return
		}
		seen[string(key)] = i
	}
}

// appendKey appends what is the same for equal values, and for no others.
func appendKey(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		b = append(strconv.AppendInt(append(b, '{'), int64(len(v)), 10), ':')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			b = appendKey(appendKey(b, name), v[name])
		}
	case []any:
		b = append(strconv.AppendInt(append(b, '['), int64(len(v)), 10), ':')
		for _, item := range v {
			b = appendKey(b, item)
		}
	case string:
		b = append(strconv.AppendInt(append(b, '"'), int64(len(v)), 10), ':')
		b = append(b, v...)
	case json.Number:
		b = append(append(append(b, '0'), plainNumber(string(v))...), ';')
	case bool:
		b = strconv.AppendBool(b, v)
	default:
		b = append(b, 'n')
	}
	return b
}

// plainNumber returns the same text for equal numbers: 1, 1.0 and 10e-1.
func plainNumber(s string) string {
	if !strings.ContainsAny(s, ".eE") && s != "-0" {
		return s
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return s
	}
	return r.RatString()
}

// names stands in for the library's propertyNames, whose errors share the memory of their path with those after.
type names struct{ schema *jsonschema.Schema }

func (n names) Validate(ctx *jsonschema.ValidatorContext, v any) {
	obj, ok := v.(map[string]any)
	if !ok {
		return
	}
	for name := range obj {
		if err, ok := n.schema.Validate(name).(*jsonschema.ValidationError); ok {
			ctx.AddErr(&jsonschema.ValidationError{
				SchemaURL:        n.schema.Location,
				InstanceLocation: slices.Clone(ctx.ValueLocation()),
				ErrorKind:        &kind.PropertyNames{Property: name},
				Causes:           err.Causes,
			})
		}
	}
}
