package main

import (
	"github.com/pfar/pfar/generator/importer"
)

// importVerb makes declarations of the servers that clients start themselves.
type importVerb struct{ *pfar }

// importWish is what pfar import has to do.
type importWish struct {
	files      []string
	from, user string
	only       []string
	undo       bool
	dryRun     bool
	yes        bool
}

// imported is the result of an import, as JSON.
type imported struct {
	Files  []readFile `json:"files"`
	Record string     `json:"record,omitempty"` // the file that --undo reads
	DryRun bool       `json:"dry_run,omitempty"`
}

// readFile is one file of a client.
type readFile struct {
	File    string    `json:"file"`
	Program string    `json:"program,omitempty"`
	Servers []planned `json:"servers"`
	source  importer.Source
}

// planned is one server of such a file.
type planned struct {
	importer.Proposal
	File   string `json:"declared,omitempty"` // of the declaration, once it is written
	Failed string `json:"failed,omitempty"`   // why it is not
	Absent bool   `json:"absent,omitempty"`   // its package is still to be installed
	half   bool   // what was done for it could not be undone
}

// wanted are the servers that can be imported.
func (i *imported) wanted() (list []*planned) {
	for f := range i.Files {
		for s := range i.Files[f].Servers {
			if one := &i.Files[f].Servers[s]; one.Refused == "" {
				list = append(list, one)
			}
		}
	}
	return list
}
