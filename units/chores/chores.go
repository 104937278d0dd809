// Package chores describes what pfard has pfar's own commands do for a person at a console: the lesson of pfar learn,
// and the preview and the result of pfar import, as pfard hands them to the console.
package chores

import (
	"time"

	"github.com/pfar/pfar/units/wants"
)

// Learning is the newest run of pfar learn for a server. The zero value is none.
type Learning struct {
	Began  time.Time     `json:"began,omitzero"`
	Ended  time.Time     `json:"ended,omitzero"`   // zero: it goes on
	Failed string        `json:"failed,omitempty"` // why it has ended early
	Found  *wants.Lesson `json:"found,omitempty"`  // nil: nothing was learned
}

// UnderWay reports whether the server is in learning mode.
func (l Learning) UnderWay() bool { return !l.Began.IsZero() && l.Ended.IsZero() }

// Importing is an import of the servers of a program, or its preview, which has not begun.
type Importing struct {
	Program string    `json:"program,omitempty"`
	Digest  string    `json:"digest,omitempty"` // of a preview: it names what the preview shows
	Began   time.Time `json:"began,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`   // zero: it goes on
	Failed  string    `json:"failed,omitempty"` // why it has ended early
	Import  *Import   `json:"import,omitempty"` // nil: there is no result
}

// UnderWay reports whether the import has begun and not ended.
func (i Importing) UnderWay() bool { return !i.Began.IsZero() && i.Ended.IsZero() }

// Import is what pfar import --json prints. It has no value of a secret.
type Import struct {
	Files []File `json:"files"`
}

// File is one file of a program.
type File struct {
	File    string   `json:"file"`
	Servers []Server `json:"servers"`
}

// Server is what becomes of one server of a file.
type Server struct {
	Name        string   `json:"name"` // in the file
	Line        int      `json:"line"`
	Server      string   `json:"server"`
	Package     string   `json:"package,omitempty"`
	Absent      bool     `json:"absent,omitempty"` // the package is still to be installed
	Declaration string   `json:"declaration,omitempty"`
	Secrets     []Secret `json:"secrets,omitempty"`
	Notes       []Note   `json:"notes,omitempty"`
	Refused     string   `json:"refused,omitempty"`  // why there is no declaration
	Declared    string   `json:"declared,omitempty"` // the file of the declaration, once it is written
	Failed      string   `json:"failed,omitempty"`   // why it is not
}

// Wanted are the servers that can be imported.
func (i *Import) Wanted() (list []Server) {
	for _, f := range i.Files {
		for _, s := range f.Servers {
			if s.Refused == "" {
				list = append(list, s)
			}
		}
	}
	return list
}

// Note is a remark about a line of the file.
type Note struct {
	Line int    `json:"line,omitempty"` // 0: none
	Text string `json:"text"`
}

// Secret is one that a server gets from the vault.
type Secret struct {
	Key      string `json:"key"`
	Variable string `json:"variable"`
	Brokered bool   `json:"brokered,omitempty"` // the server gets a placeholder
	Waits    bool   `json:"waits,omitempty"`    // the file does not have it
	Login    bool   `json:"login,omitempty"`    // pfar login obtains it
}

// Words say where a server gets the secret from.
func (s Secret) Words(server string) string {
	switch {
	case s.Login:
		return s.Variable + ", in the vault as " + s.Key + " once you have run pfar login " + server
	case s.Waits:
		return s.Variable + " is missing: pfar vault set " + s.Key
	case s.Brokered:
		return s.Variable + ", into the vault as " + s.Key + "; the server gets a placeholder"
	}
	return s.Variable + ", into the vault as " + s.Key
}
