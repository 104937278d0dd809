package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// describe says what a rule wants and what there is instead. Words of the schema and of the value are quoted.
func describe(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("want %s, got %s", strings.Join(k.Want, " or "), k.Got)
	case alternativeTypes:
		return describe(k.Type)
	case *kind.Const:
		return fmt.Sprintf("want %s, got %s", show(k.Want), show(k.Got))
	case *kind.Enum:
		return fmt.Sprintf("want one of %s, got %s", several(k.Want, show), show(k.Got))
	case *kind.Required:
		return missing(k.Missing)
	case *kind.Dependency:
		return fmt.Sprintf("with the member %s, %s", quoted(k.Prop, maxShow), missing(k.Missing))
	case *kind.DependentRequired:
		return fmt.Sprintf("with the member %s, %s", quoted(k.Prop, maxShow), missing(k.Missing))
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		return fmt.Sprintf("%s %s not allowed", members(k.Properties), is(len(k.Properties)))
	case *kind.AdditionalItems:
		return fmt.Sprintf("the last %d items are not allowed", k.Count)
	case *kind.FalseSchema:
		return "no value is allowed here"
	case *kind.Not:
		return "the value matches what \"not\" excludes"
	case *kind.OneOf:
		return fmt.Sprintf("want one alternative, the value matches numbers %d and %d", k.Subschemas[0], k.Subschemas[1])
	case *kind.Pattern:
		return fmt.Sprintf("want a match of %s, got %s", quoted(k.Want, maxShow), quoted(k.Got, maxShow))
	case *kind.UniqueItems:
		return fmt.Sprintf("items %d and %d are equal", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "no item matches \"contains\""
	case *kind.MinContains:
		return fmt.Sprintf("want at least %d items of a kind, got %d", k.Want, len(k.Got))
	case *kind.MaxContains:
		return fmt.Sprintf("want at most %d items of a kind, got %d", k.Want, len(k.Got))
	case *kind.MultipleOf:
		return fmt.Sprintf("want a multiple of %s, got %s", rational(k.Want), rational(k.Got))
	case *kind.Format:
		return fmt.Sprintf("want %s, got %s: %s", quoted(k.Want, maxShow), show(k.Got), quoted(fmt.Sprint(k.Err), 2*maxShow))
	}
	return describeSize(k)
}

// describeSize says which bound is not kept.
func describeSize(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.MinProperties:
		return bound("at least", k.Want, "members", k.Got)
	case *kind.MaxProperties:
		return bound("at most", k.Want, "members", k.Got)
	case *kind.MinItems:
		return bound("at least", k.Want, "items", k.Got)
	case *kind.MaxItems:
		return bound("at most", k.Want, "items", k.Got)
	case *kind.MinLength:
		return bound("at least", k.Want, "characters", k.Got)
	case *kind.MaxLength:
		return bound("at most", k.Want, "characters", k.Got)
	case *kind.Minimum:
		return fmt.Sprintf("want at least %s, got %s", rational(k.Want), rational(k.Got))
	case *kind.Maximum:
		return fmt.Sprintf("want at most %s, got %s", rational(k.Want), rational(k.Got))
	case *kind.ExclusiveMinimum:
		return fmt.Sprintf("want more than %s, got %s", rational(k.Want), rational(k.Got))
	case *kind.ExclusiveMaximum:
		return fmt.Sprintf("want less than %s, got %s", rational(k.Want), rational(k.Got))
	}
	return fmt.Sprintf("the value violates %q", strings.Join(k.KeywordPath(), "/"))
}

func bound(which string, want int, what string, got int) string {
	if want == 1 {
		what = strings.TrimSuffix(what, "s")
	}
	return fmt.Sprintf("want %s %d %s, got %d", which, want, what, got)
}

func missing(names []string) string { return members(names) + " " + is(len(names)) + " missing" }

func members(names []string) string {
	word := "the members "
	if len(names) == 1 {
		word = "the member "
	}
	return word + several(names, func(s string) string { return quoted(s, maxShow) })
}

func is(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// several lists up to 8 things.
func several[T any](list []T, show func(T) string) string {
	var b strings.Builder
	for i, v := range list {
		if i == maxTold {
			fmt.Fprintf(&b, " and %d more", len(list)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(show(v))
	}
	return b.String()
}

// show returns a word for a value.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return quoted(v, maxShow)
	case json.Number:
		return cut(string(v), maxShow)
	case bool:
		return fmt.Sprint(v)
	}
	return typeName(v)
}

func typeName(v any) string {
	switch kindBit(v) {
	case isNull:
		return "null"
	case isBool:
		return "a boolean"
	case isNumber:
		return "a number"
	case isString:
		return "a string"
	case isArray:
		return "an array"
	}
	return "an object"
}

// rational writes a number exactly if that is short.
func rational(r *big.Rat) string {
	if r == nil {
		return "no number"
	}
	if n, exact := r.FloatPrec(); exact && n <= 20 && r.Num().BitLen() < 256 {
		return r.FloatString(n)
	}
	f, _ := r.Float64()
	return fmt.Sprintf("%g", f)
}
