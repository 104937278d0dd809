package jsonrpc

import (
	"bytes"
	"slices"
)

// Edit replaces the bytes from Start up to End by Text.
type Edit struct {
	Start, End int
	Text       []byte
}

// Splice appends b to dst with the edits made, which are in order and do not overlap. Every other byte stays.
func Splice(dst, b []byte, edits ...Edit) []byte {
	at := 0
	for _, e := range edits {
		dst = append(dst, b[at:e.Start]...)
		dst = append(dst, e.Text...)
		at = e.End
	}
	return append(dst, b[at:]...)
}

// Replace is the edit that gives member i another value.
func (ms Members) Replace(i int, value []byte) Edit {
	return Edit{ms[i].ValueStart, ms[i].ValueEnd, value}
}

// Remove is the edit that takes member i out, and the comma that would be left.
func (ms Members) Remove(i int) Edit {
	switch {
	case i+1 < len(ms):
		return Edit{Start: ms[i].NameStart, End: ms[i+1].NameStart}
	case i > 0:
		return Edit{Start: ms[i-1].ValueEnd, End: ms[i].ValueEnd}
	}
	return Edit{Start: ms[i].NameStart, End: ms[i].ValueEnd}
}

// Prepend returns the edit that puts members, without brackets, before all others of the object b.
func (ms Members) Prepend(b, members []byte) Edit {
	at := bytes.IndexByte(b, '{') + 1
	if len(ms) > 0 {
		members = append(members[:len(members):len(members)], ',')
	}
	return Edit{at, at, members}
}

// Merge appends an object to dst: those of ms that keep accepts, as they came, and then added, members without
// brackets.
func (ms Members) Merge(dst []byte, keep func(name []byte) bool, added []byte) []byte {
	dst = append(dst, '{')
	for i := range ms {
		if !keep(ms[i].Name) {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(dst, ms[i].raw[ms[i].NameStart:ms[i].ValueEnd]...)
	}
	if len(added) > 0 {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(dst, added...)
	}
	return append(dst, '}')
}

// Amend returns an object with members added before the others, without brackets, and without those of its own that
// keep does not accept. Where nothing is left out, all that was there stays as it is, white space too. What is no
// object is replaced by one.
func Amend(object []byte, keep func(name []byte) bool, added []byte) []byte {
	ms, err := Object(object, make(Members, 0, 8))
	if err != nil {
		return slices.Concat([]byte{'{'}, added, []byte{'}'})
	}
	for i := range ms {
		if !keep(ms[i].Name) {
			return ms.Merge(nil, keep, added)
		}
	}
	return Splice(make([]byte, 0, len(object)+len(added)+1), object, ms.Prepend(object, added))
}

// OrEmpty returns an object, the empty one for none.
func OrEmpty(object []byte) []byte {
	if object == nil {
		return []byte("{}")
	}
	return object
}
