package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pfar/pfar/policies/argument"
)

// flagValue is the pflag.Value of one property: it collects JSON values.
type flagValue struct {
	property property
	values   []json.RawMessage
}

func (a *flagValue) Type() string {
	if a.property.Kind == argument.Array {
		return a.property.Item.String()
	}
	return a.property.Kind.String()
}

func (a *flagValue) String() string { return "" }

// Set takes one use of the flag.
func (a *flagValue) Set(text string) error {
	if a.property.Kind != argument.Array && len(a.values) > 0 {
		return errors.New("given more than once")
	}
	value, err := a.property.Parse(text)
	if err != nil {
		return err
	}
	a.values = append(a.values, value)
	return nil
}

// json is the property's value.
func (a *flagValue) json() json.RawMessage {
	if a.property.Kind != argument.Array {
		return a.values[0]
	}
	b, _ := json.Marshal(a.values) // each was checked when it was set
	return b
}

// addFlags makes one flag for each property that can have one.
func addFlags(flags *pflag.FlagSet, properties []property) []*flagValue {
	var args []*flagValue
	for _, p := range properties {
		if p.flag == "" {
			continue
		}
		a := &flagValue{property: p}
		flag := flags.VarPF(a, p.flag, "", p.Description)
		if p.Kind == argument.Boolean {
			flag.NoOptDefVal = "true"
		}
		args = append(args, a)
	}
	return args
}

// assemble joins whole arguments and flags, which win, and names every required property that nobody gave. A required
// property with a default is filled in: generators write both for what the caller may leave out.
func assemble(whole map[string]json.RawMessage, args []*flagValue, properties []property) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	maps.Copy(all, whole)
	for _, a := range args {
		if len(a.values) > 0 {
			all[a.property.Name] = a.json()
		}
	}
	var missing []string
	for _, p := range properties {
		if _, given := all[p.Name]; given || !p.Required {
			continue
		}
		switch {
		case len(p.Default) > 0 && string(p.Default) != "null":
			all[p.Name] = p.Default
		case p.flag == "":
			missing = append(missing, fmt.Sprintf("%q (by --json)", p.Name))
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
