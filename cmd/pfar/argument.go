package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// argument is the pflag.Value of one property: it collects JSON values.
type argument struct {
	property property
	values   []json.RawMessage
}

func (a *argument) Type() string {
	if a.property.kind == kindArray {
		return a.property.item.String()
	}
	return a.property.kind.String()
}

func (a *argument) String() string { return "" }

// Set takes one use of the flag.
func (a *argument) Set(text string) error {
	k := a.property.kind
	if k == kindArray {
		k = a.property.item
	} else if len(a.values) > 0 {
		return errors.New("given more than once")
	}
	value, err := parseValue(k, a.property.text, text)
	if err != nil {
		return err
	}
	if enum := a.property.enum; len(enum) > 0 && !slices.ContainsFunc(enum, func(e json.RawMessage) bool { return sameJSON(e, value) }) {
		return fmt.Errorf("want one of %s", strings.Join(enumTexts(enum), ", "))
	}
	a.values = append(a.values, value)
	return nil
}

// json is the property's value.
func (a *argument) json() json.RawMessage {
	if a.property.kind != kindArray {
		return a.values[0]
	}
	b, _ := json.Marshal(a.values) // each was checked when it was set
	return b
}

// jsonNumber is RFC 8259's number; the text is passed on as it is, for a float64 would round it.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func parseValue(k kind, text bool, s string) (json.RawMessage, error) {
	switch k {
	case kindString:
		return json.Marshal(s)
	case kindNumber, kindInteger:
		if !jsonNumber.MatchString(s) || k == kindInteger && strings.ContainsAny(s, ".eE") {
			return nil, fmt.Errorf("want %s", map[kind]string{kindNumber: "a number", kindInteger: "a whole number"}[k])
		}
		return json.RawMessage(s), nil
	case kindBoolean:
		if s != "true" && s != "false" {
			return nil, errors.New(`want "true" or "false"`)
		}
		return json.RawMessage(s), nil
	}
	if json.Valid([]byte(s)) {
		return json.RawMessage(s), nil
	}
	if text {
		return json.Marshal(s)
	}
	return nil, errors.New("want JSON")
}

// sameJSON compares scalars: strings by what they spell, numbers by value.
func sameJSON(a, b json.RawMessage) bool {
	s, isText := unquoted(a)
	if t, both := unquoted(b); isText && both {
		return s == t
	}
	// A long exponent would make an exact number of that many digits.
	x, okX := new(big.Float).SetString(string(a))
	y, okY := new(big.Float).SetString(string(b))
	if okX && okY {
		return x.Cmp(y) == 0
	}
	return string(a) == string(b)
}

// enumTexts are the values as one types them.
func enumTexts(enum []json.RawMessage) []string {
	texts := make([]string, len(enum))
	for i, e := range enum {
		texts[i] = string(e)
		if text, ok := unquoted(e); ok {
			texts[i] = text
		}
	}
	return texts
}

// addFlags makes one flag for each property that can have one.
func addFlags(flags *pflag.FlagSet, properties []property) []*argument {
	var args []*argument
	for _, p := range properties {
		if p.flag == "" {
			continue
		}
		a := &argument{property: p}
		flag := flags.VarPF(a, p.flag, "", p.description)
		if p.kind == kindBoolean {
			flag.NoOptDefVal = "true"
		}
		args = append(args, a)
	}
	return args
}

// assemble joins whole arguments and flags, which win, and names every required property that nobody gave. A required
// property with a default is filled in: generators write both for what the caller may leave out.
func assemble(whole map[string]json.RawMessage, args []*argument, properties []property) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	maps.Copy(all, whole)
	for _, a := range args {
		if len(a.values) > 0 {
			all[a.property.name] = a.json()
		}
	}
	var missing []string
	for _, p := range properties {
		if _, given := all[p.name]; given || !p.required {
			continue
		}
		switch {
		case len(p.def) > 0 && string(p.def) != "null":
			all[p.name] = p.def
		case p.flag == "":
			missing = append(missing, fmt.Sprintf("%q (by --json)", p.name))
		default:
			missing = append(missing, "--"+p.flag)
		}
	}
	if len(missing) > 0 {
		return nil, usage("missing %s", strings.Join(missing, ", "))
	}
	return all, nil
}

// ownFlags are the names that pfar call keeps for itself.
func ownFlags() []string { return []string{"help", "json", "output"} }
