// Package transcript holds the messages between pfar's processes to those recorded of the version before: tests call
// it.
//
// An upgrade replaces pfard and the gateway while launchers, bridges and clients of the version before go on. Each
// protocol has a file of the messages that this version sends, a line each: its kind and its JSON, with every member
// set. A later version must still send all of that, and must read it as it was meant.
package transcript

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Kind is one kind of message.
type Kind struct {
	Name   string
	Zero   any                                 // an empty message
	Read   func([]byte) (message any, _ error) // as its receiver does; nil: as json.Unmarshal does
	Sent   bool                                // its receiver has types of its own
	Strict bool                                // its receiver refuses a message with an unknown member
	Such   []any                               // values for members of their types, where not every value will do
	Also   []any                               // further messages, for words that the types do not show
}

// Hold compares the messages of this version with those recorded in the file. With update it adds to the file what is
// new in this version; it takes nothing away.
func Hold(t *testing.T, file string, update bool, kinds ...Kind) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !(update && errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	recorded := map[string][]any{}
	for line := range strings.Lines(string(text)) {
		kind, message, err := parse(line)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !slices.ContainsFunc(kinds, func(k Kind) bool { return k.Name == kind }) {
			t.Errorf("%s: nobody sends %q any more", file, kind)
		}
		recorded[kind] = append(recorded[kind], message)
	}
	var all bytes.Buffer
	for _, k := range kinds {
		faults, now := k.compare(recorded[k.Name])
		for _, f := range faults {
			if errors.Is(f, errNew) && update {
				continue
			}
			t.Errorf("%s: %s: %v", file, k.Name, f)
		}
		for _, m := range now {
			fmt.Fprintf(&all, "%s %s\n", k.Name, encode(m))
		}
	}
	if update && !t.Failed() {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, all.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	errNew     = errors.New("this is new; run the test with -update and read the difference")
	errUnsaid  = errors.New("this version does not send it so; see CONTRIBUTING.md, To change a protocol")
	errUnread  = errors.New("this version does not read it; see CONTRIBUTING.md, To change a protocol")
	errUnknown = errors.New("an unknown member changes how this version reads it")
)

// compare finds what is wrong between the recorded messages and those of this version. It also returns what a new
// record has to hold.
func (k Kind) compare(recorded []any) (faults []error, now []any) {
	sent := k.messages()
	now = slices.Clone(recorded)
	for _, r := range recorded {
		if !slices.ContainsFunc(sent, func(s any) bool { return contains(s, r) }) {
			faults = append(faults, fmt.Errorf("%s: %w", encode(r), errUnsaid))
		}
		if err := k.reads(r); err != nil && !k.Sent {
			faults = append(faults, fmt.Errorf("%s: %w", encode(r), err))
		}
	}
	for _, s := range sent {
		if slices.ContainsFunc(now, func(r any) bool { return contains(r, s) }) {
			continue
		}
		faults = append(faults, fmt.Errorf("%s: %w", encode(s), errNew))
		if i := slices.IndexFunc(now, func(r any) bool { return contains(s, r) }); i >= 0 {
			now[i] = s
		} else {
			now = append(now, s)
		}
	}
	return faults, now
}

// reads checks that this version reads a message whole, and as it was meant if there is more in it.
func (k Kind) reads(message any) error {
	read, err := k.read(encode(message))
	if err != nil {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	if !contains(read, message) {
		return fmt.Errorf("%w: it reads %s", errUnread, encode(read))
	}
	more, err := k.read(encode(extended(reflect.TypeOf(k.Zero), message, k.such())))
	switch {
	case k.Strict && err == nil:
		return fmt.Errorf("%w: it is to be refused", errUnknown)
	case k.Strict:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errUnknown, err)
	case !reflect.DeepEqual(more, read):
		return fmt.Errorf("%w: it reads %s", errUnknown, encode(more))
	}
	return nil
}

// read returns a message as JSON has it once its receiver has read it.
func (k Kind) read(text []byte) (any, error) {
	read := k.Read
	if read == nil {
		read = func(b []byte) (any, error) {
			m := reflect.New(reflect.TypeOf(k.Zero))
			err := json.Unmarshal(b, m.Interface())
			return m.Elem().Interface(), err
		}
	}
	m, err := read(text)
	if err != nil {
		return nil, err
	}
	return decode(encode(m))
}

// messages are those of this version, with all that can be in them. A message whose members can all be left out has one
// at a time.
func (k Kind) messages() (list []any) {
	zero, such := reflect.ValueOf(k.Zero), k.such()
	add := func(m any) {
		v, err := decode(encode(m))
		if err != nil {
			panic(err)
		}
		if !slices.ContainsFunc(list, func(l any) bool { return reflect.DeepEqual(l, v) }) {
			list = append(list, v)
		}
	}
	if string(encode(k.Zero)) != "{}" {
		m := reflect.New(zero.Type()).Elem()
		fill(m, such, nil)
		add(m.Interface())
	} else {
		for i := range zero.NumField() {
			if travels(zero.Type().Field(i)) {
				m := reflect.New(zero.Type()).Elem()
				fill(m.Field(i), such, nil)
				add(m.Interface())
			}
		}
	}
	for _, m := range k.Also {
		add(m)
	}
	return list
}

// such are the values of which types are filled with them.
func (k Kind) such() map[reflect.Type]reflect.Value {
	such := map[reflect.Type]reflect.Value{}
	for _, v := range append(slices.Clone(examples), k.Such...) {
		such[reflect.TypeOf(v)] = reflect.ValueOf(v)
	}
	return such
}

// parse reads a line of a file.
func parse(line string) (kind string, message any, err error) {
	kind, text, ok := strings.Cut(strings.TrimSpace(line), " ")
	if !ok {
		return "", nil, fmt.Errorf("%q has no message", line)
	}
	message, err = decode([]byte(text))
	return kind, message, err
}
