package importer

import (
	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies/gate"
)

// Options are what declarations are made by.
type Options struct {
	Origin   string // where the servers are from, for a comment
	Services catalog.Set
	Facts    map[string]gate.Service
	Taken    map[string]string      // names of declared servers, and their files
	Exists   func(path string) bool // of the host; nil: everything exists
}

// Value is a secret's, which no format shows.
type Value string

func (Value) String() string               { return "***" }
func (Value) GoString() string             { return "***" }
func (Value) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Secret is one that a server gets from the vault.
type Secret struct {
	Key      string `json:"key"`
	Variable string `json:"variable"`
	Line     int    `json:"line,omitempty"`
	Brokered bool   `json:"brokered,omitempty"` // the server gets a placeholder
	File     bool   `json:"file,omitempty"`     // the server reads a file that has it
	Waits    bool   `json:"waits,omitempty"`    // the file does not have it
	Login    bool   `json:"login,omitempty"`    // pfar login obtains it
	Value    Value  `json:"-"`
}

// Proposal is what becomes of one server of a file.
type Proposal struct {
	Name    string   `json:"name"` // in the file
	Line    int      `json:"line"`
	Server  string   `json:"server"`
	Package string   `json:"package,omitempty"`
	Service string   `json:"service,omitempty"`
	Text    string   `json:"declaration,omitempty"`
	Secrets []Secret `json:"secrets,omitempty"`
	Hosts   bool     `json:"hosts_known"` // whether it is known what the server reaches
	Notes   []Note   `json:"notes,omitempty"`
	Refused string   `json:"refused,omitempty"` // why there is no declaration
}

// draft is a declaration while it is made.
type draft struct {
	Entry
	o       Options
	service catalog.Service // what the declaration is written from
	choices catalog.Choices
	known   bool             // service is one of the catalogue, or of its facts
	tokens  []catalog.Secret // that the vendor's own server takes
	given   map[string]bool  // secrets of service that have a value, by variable
	p       Proposal
}

func (d *draft) words() []string {
	words := []string{d.command.Text}
	for _, a := range d.args {
		words = append(words, a.Text)
	}
	return words
}
