package fault

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/jsonrpc"
)

// Strip takes out of an answer what only pfar may say: Key in the data of an error, and in the _meta of a result. Names
// that only differ in case go too, since encoding/json takes them for the same. An answer in which that could be read
// in two ways is an error.
func Strip(line []byte, m jsonrpc.Message) ([]byte, error) {
	if !mayName(line) {
		return line, nil
	}
	line, err := stripMember(line, m.Members, "error", "data")
	if err != nil {
		return nil, err
	}
	again, err := jsonrpc.Object(line, make(jsonrpc.Members, 0, 4))
	if err != nil {
		return nil, err
	}
	return stripMember(line, again, "result", "_meta")
}

// mayName reports whether a text may contain Key, however it is written.
func mayName(line []byte) bool {
	for rest := line; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 || i+1 == len(rest) {
			break
		}
		if rest[i+1] == 'u' || rest[i+1] == '/' {
			return true
		}
		rest = rest[i+2:]
	}
	for rest := line; ; { // letter by letter only where there is a slash
		i := bytes.IndexByte(rest, '/')
		if i < 0 {
			return false
		}
		if i >= len("pfar") && bytes.EqualFold(rest[i-len("pfar"):i], []byte("pfar")) {
			return true
		}
		rest = rest[i+1:]
	}
}

// stripMember removes Key from line's member outer, from that one's member inner.
func stripMember(line []byte, ms jsonrpc.Members, outer, inner string) ([]byte, error) {
	i := ms.Index(outer)
	if i < 0 || !isObject(ms[i].Raw()) {
		return line, ms.LookAlike(outer)
	}
	middle := ms[i].Raw()
	of, err := jsonrpc.Object(middle, make(jsonrpc.Members, 0, 8))
	if err != nil {
		return nil, err
	}
	if err := of.LookAlike(inner); err != nil {
		return nil, err
	}
	j := of.Index(inner)
	if j < 0 || !isObject(of[j].Raw()) {
		return line, nil
	}
	within, err := jsonrpc.Object(of[j].Raw(), make(jsonrpc.Members, 0, 8))
	if err != nil {
		return nil, err
	}
	ours := func(name []byte) bool { return strings.EqualFold(string(name), Key) }
	if !slices.ContainsFunc(within, func(m jsonrpc.Member) bool { return ours(m.Name) }) {
		return line, nil
	}
	kept := within.Merge(nil, func(name []byte) bool { return !ours(name) }, nil)
	middle = jsonrpc.Splice(nil, middle, of.Replace(j, kept))
	return jsonrpc.Splice(nil, line, ms.Replace(i, middle)), nil
}

func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }
