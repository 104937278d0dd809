package inspect

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/pfar/pfar/units/jsonrpc"
)

// maxAnswer bounds what an inspector answers with, in bytes.
const maxAnswer = 64 << 10

// read reads an answer: one object with a verdict, "clean" or "flagged", and it may have a kind and a reason, strings.
// Anything else, before or behind it too, is no answer.
func read(b []byte) (verdict, error) {
	if len(b) > maxAnswer {
		return verdict{}, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	ms, err := jsonrpc.Object(bytes.TrimSpace(b), nil) // a name that comes twice is an error
	if err != nil {
		return verdict{}, fmt.Errorf("reading the answer: %w", err)
	}
	var v verdict
	said := ""
	for i := range ms {
		to := map[string]*string{"verdict": &said, "kind": &v.kind, "reason": &v.reason}[string(ms[i].Name)]
		if to == nil {
			return verdict{}, fmt.Errorf("the answer has a member %.50q", ms[i].Name)
		}
		if *to, err = jsonrpc.String(ms[i].Raw()); err != nil {
			return verdict{}, fmt.Errorf("the answer's %s is %w", ms[i].Name, err)
		}
	}
	switch said {
	case "clean":
		if v.kind != "" {
			return verdict{}, errors.New("the answer is clean, and has a kind")
		}
	case "flagged":
		v.flagged = true
		if v.kind == "" {
			v.kind = "flagged"
		}
	default:
		return verdict{}, fmt.Errorf("the answer's verdict is %.50q", said)
	}
	return v, nil
}
