package control

import (
	"fmt"
	"strings"
)

// Leftovers are what an undeclared server left behind.
type Leftovers struct {
	Server  string     `json:"server"`
	Items   []Leftover `json:"items"`
	Keys    []string   `json:"keys"`              // of the vault: given to it alone, named by nothing; Clean keeps them
	Removed bool       `json:"removed,omitempty"` // Items are gone
}

// Leftover is one of them.
type Leftover struct {
	What   LeftKind `json:"what"`
	Path   string   `json:"path,omitempty"`
	Bytes  int64    `json:"bytes,omitempty"` // on the disk
	Files  int      `json:"files,omitempty"`
	Partly bool     `json:"partly,omitempty"` // there is more than Bytes and Files say
	ID     int      `json:"id,omitempty"`
}

// LeftKind is what a leftover is.
type LeftKind string

const (
	LeftHome LeftKind = "home"     // its private home
	LeftUndo LeftKind = "undo"     // what it has overwritten
	LeftLog  LeftKind = "log"      // what it wrote to its standard error
	LeftMark LeftKind = "disabled" // that the operator has disabled it
	LeftID   LeftKind = "user id"
)

// String is one line for the record.
func (l Leftovers) String() string {
	var words []string
	for _, i := range l.Items {
		switch i.What {
		case LeftID:
			words = append(words, fmt.Sprintf("user id %d", i.ID))
		case LeftHome, LeftUndo:
			words = append(words, fmt.Sprintf("%s (%d files, %d bytes)", i.Path, i.Files, i.Bytes))
		default:
			words = append(words, i.Path)
		}
	}
	return strings.Join(words, ", ")
}
