package redact

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// head begins a stored set; the names follow, each with a line end, the forms of each, and what is set in the filters.
type head struct {
	Magic   [8]byte
	Key     [32]byte
	Keys    [2]uint64
	Base    uint64
	Serial  int64
	Names   uint32 // bytes
	Secrets uint32
	Blank   uint8
	Filters [maxWidth - MinLength + 1]uint8 // bits that choose a slot of each; 0: there is none
}

var magic = [8]byte{'p', 'f', 'r', 'e', 'd', 'a', 'c', 2}

// MarshalBinary writes the set.
func (s *Set) MarshalBinary() ([]byte, error) {
	var names strings.Builder
	for _, one := range s.secrets {
		names.WriteString(one.name + "\n")
	}
	h := head{magic, s.key, s.keys, s.base, s.serial, uint32(names.Len()), uint32(len(s.secrets)), s.blank, [len(s.tiers)]uint8{}}
	for i, t := range s.tiers {
		if t.filter != nil {
			h.Filters[i] = uint8(64 - t.shift)
		}
	}
	b, err := binary.Append(nil, binary.LittleEndian, h)
	b = append(b, names.String()...)
	for _, one := range s.secrets {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(one.prints)))
		if err == nil {
			b, err = binary.Append(b, binary.LittleEndian, one.prints)
		}
	}
	for i := range s.tiers {
		b = s.tiers[i].appendSlots(b)
	}
	return b, err
}

// appendSlots writes which slots are set, in their own order, so that it does not tell whose they are.
func (t *tier) appendSlots(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(bytes.Count(t.filter, []byte{1})))
	for slot, is := range t.filter {
		if is != 0 {
			b = binary.LittleEndian.AppendUint32(b, uint32(slot))
		}
	}
	return b
}

var errStored = errors.New("reading a set of secrets: not what pfard of this version writes")

// UnmarshalBinary reads what MarshalBinary wrote.
func (s *Set) UnmarshalBinary(b []byte) error {
	var h head
	n, err := binary.Decode(b, binary.LittleEndian, &h)
	if err != nil || h.Magic != magic || int(h.Names) > len(b)-n {
		return errStored
	}
	names := bytes.Split(b[n:n+int(h.Names)], []byte{'\n'})
	b = b[n+int(h.Names):]
	if len(names) != int(h.Secrets)+1 {
		return errStored
	}
	read := Set{key: h.Key, keys: h.Keys, base: h.Base, serial: h.Serial, blank: h.Blank}
	for _, name := range names[:h.Secrets] {
		one := secret{name: string(name)}
		if one.prints, b, err = readPrints(b); err != nil {
			return err
		}
		read.secrets = append(read.secrets, one)
	}
	for i := range read.tiers {
		if b, err = read.tiers[i].readSlots(b, int(h.Filters[i])); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		return errStored
	}
	read.index()
	*s = read
	return nil
}

func readPrints(b []byte) (prints []print, rest []byte, err error) {
	size := binary.Size(print{})
	if len(b) < 4 {
		return nil, nil, errStored
	}
	count := int(binary.LittleEndian.Uint32(b))
	if b = b[4:]; count > len(b)/size {
		return nil, nil, errStored
	}
	prints = make([]print, count)
	if _, err := binary.Decode(b, binary.LittleEndian, prints); err != nil {
		return nil, nil, fmt.Errorf("reading a set of secrets: %w", err)
	}
	for _, p := range prints {
		if p.Length < MinLength {
			return nil, nil, errStored
		}
	}
	return prints, b[count*size:], nil
}

func (t *tier) readSlots(b []byte, bits int) (rest []byte, err error) {
	if len(b) < 4 || bits > maxFilter {
		return nil, errStored
	}
	count := int(binary.LittleEndian.Uint32(b))
	if b = b[4:]; count > len(b)/4 {
		return nil, errStored
	}
	if bits > 0 {
		t.resize(bits)
	}
	for range count {
		slot := binary.LittleEndian.Uint32(b)
		if int(slot) >= len(t.filter) {
			return nil, errStored
		}
		t.filter[slot], b = 1, b[4:]
	}
	return b, nil
}
