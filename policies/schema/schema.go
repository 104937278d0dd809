// Package schema checks the arguments and results of tools against the JSON Schemas that servers send, with work
// bounded by what a check may cost.
package schema

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a JSON Schema ready to check values. It never changes, and may be used by many goroutines at once.
type Schema struct {
	compiled *jsonschema.Schema
	graph    *graph
	trivial  byte // any: what a value must begin with to conform, whatever follows
	text     any  // the schema itself, if it has formats: the library keeps none of them
}

// Compile reads a schema that a server sent. A schema without "$schema", or with one of its own making, is of draft
// 2020-12; if it is none it is read as draft-07 or draft-04, which many servers mean and do not say. Nothing is ever
// fetched: references lead within the schema or to the published drafts. The error says where and what is wrong, on
// one line, quoted; it is also an error if a check could cost too much.
func Compile(raw []byte) (s *Schema, err error) {
	// The library is not ours and the schema is a stranger's: a panic costs this tool only.
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("the schema cannot be compiled: %s", quoted(fmt.Sprint(r), 2*maxShow))
		}
	}()
	d, err := readDocument(raw)
	if err != nil {
		return nil, err
	}
	engine := newPatterns()
	compiled, c, err := d.compile(engine)
	if err != nil {
		return nil, err
	}
	g, err := newGraph(compiled, d.anchored(c))
	if err != nil {
		return nil, err
	}
	s = &Schema{compiled: compiled, graph: g, trivial: d.trivial()}
	if bytes.Contains(raw, []byte(`"format"`)) {
		s.text = d.root
	}
	return s, nil
}

// Check reports the violations of value, JSON that was found to be well-formed, nil if it conforms. A value that
// would take more work than a check may, is a violation too.
func (s *Schema) Check(value []byte) (v *Violation) {
	switch s.trivial {
	case anyValue:
		return nil
	case anyObject:
		if t := bytes.TrimLeft(value, " \t\r\n"); len(t) > 0 && t[0] == '{' {
			return nil
		}
	}
	defer func() {
		if r := recover(); r != nil {
			v = refused("the value made the check fail: %s", quoted(fmt.Sprint(r), 2*maxShow))
		}
	}()
	held := len(value) > heavyBytes
	if held {
		heavySlots <- struct{}{}
		defer func() { <-heavySlots }()
	}
	return s.check(value, held)
}

// heavySlots lets few checks run at once of those that take much memory: a value may become 100 MB when it is read, and
// the errors in it 100 MB more.
var heavySlots = make(chan struct{}, 2)

const (
	heavyBytes = 1 << 20
	heavySteps = 1 << 15
)

func (s *Schema) check(value []byte, held bool) *Violation {
	// The text is the caller's memory, which is only read, and of which nothing is kept.
	d := decoder{s: unsafe.String(unsafe.SliceData(value), len(value)), maxDepth: maxDepth, maxNodes: maxNodes}
	tree, err := d.document()
	if err != nil {
		return refused("%v", err)
	}
	steps, err := s.graph.cost(tree, &d)
	if err != nil {
		return refused("%v", err)
	}
	if steps > heavySteps && !held {
		heavySlots <- struct{}{}
		defer func() { <-heavySlots }()
	}
	if err := s.compiled.Validate(tree); err != nil {
		var invalid *jsonschema.ValidationError
		if !errors.As(err, &invalid) {
			return refused("%s", quoted(err.Error(), 2*maxShow))
		}
		return violation(invalid)
	}
	return nil
}
